#!/usr/bin/python3
"""The analysis on made-up records, where the right answer is known."""

import json
import pathlib
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import gaps  # noqa: E402  (found through the line above)

STEP = 0.04


def course(first, count, start, view=1, size=3, epoch=0, every=STEP):
    """Steps `first`…, the first of them ending at `start`."""
    return [gaps.Step(start + at * every, first + at, view, size, epoch, 100) for at in range(count)]


def line(step, worker=0, **more):
    return json.dumps({"kind": "step", "t": 1000 + step * STEP, "step": step, "view": 1, "view_hash": "0" * 16,
                       "worker": worker, "rank": worker, "size": 2, "epoch": 0, "dataset": 6400,
                       "samples": [{"worker": 0, "epoch": 0, "ranges": [[step * 64, step * 64 + 32]]},
                                   {"worker": 1, "epoch": 0, "ranges": [[step * 64 + 32, step * 64 + 64]]}],
                       "global_batch": 64, "lr": 0.1, "loss": None, "digest": "0" * 16, "stall_ms": 0, "lineage": 0,
                       **more})


def killed(late=0.0, second=0.0, again=0):
    """Three workers; 2 dies after step 49 and the others make step 50 late, worker 1 later by `second`."""
    records = {worker: course(0, 50, 100.0) for worker in (0, 1, 2)}
    for worker in (0, 1):
        more = late + (second if worker else 0)
        records[worker] += course(50 - again, 50, 100 + 50 * STEP + more, view=2, size=2)
    return records


class Gaps(unittest.TestCase):
    def gap(self, event, records):
        return gaps.gap_of(event, records, gaps.ordinary(records))

    def test_kill_is_the_last_survivors(self):
        event = gaps.Event("kill", 100 + 49.5 * STEP, [0, 1, 2], victims=[2])
        gap = self.gap(event, killed(0.030, 0.050))
        self.assertAlmostEqual(gap.ms, 80, places=3)
        self.assertAlmostEqual(gap.silence_ms, 120, places=3)
        self.assertEqual(gap.lost, 0)

    def test_no_delay_is_no_gap(self):
        event = gaps.Event("kill", 100 + 49.5 * STEP, [0, 1, 2], victims=[2])
        self.assertAlmostEqual(self.gap(event, killed()).ms, 0, places=3)

    def test_a_step_that_was_nearly_done_does_not_hide_the_gap(self):
        # Killed before the end of step 49, which the survivors still finish in time.
        event = gaps.Event("kill", 100 + 48.5 * STEP, [0, 1, 2], victims=[2])
        self.assertAlmostEqual(self.gap(event, killed(0.030)).ms, 30, places=3)

    def test_fault_is_found_by_its_step(self):
        records = killed(0.030)
        records[2].pop()  # step 49 was complete, but nobody has told the victim yet
        event = gaps.fault_event("kill mid_slice", 2, 50, records)
        self.assertEqual(event.members, [0, 1, 2])
        self.assertAlmostEqual(self.gap(event, records).ms, 30, places=3)

    def test_faults_that_did_not_come_about(self):
        for step, why in ((40, "survived step 40"), (70, "not there in step 70")):
            with self.assertRaisesRegex(gaps.Unclear, why):
                gaps.fault_event("kill mid_slice", 2, step, killed())

    def test_steps_made_again_are_lost(self):
        event = gaps.Event("kill", 100 + 49.5 * STEP, [0, 1, 2], victims=[2])
        self.assertEqual(self.gap(event, killed(again=7)).lost, 7)

    def test_steps_only_the_victim_knows_are_lost(self):
        victim = course(0, 53, 100.0)
        self.assertEqual(gaps.lost_with([victim], [course(49, 2, 102.0), course(49, 1, 102.0)]), 0)
        torn = [course(49, 1, 102.0) + course(52, 1, 103.0)]
        self.assertEqual(gaps.lost_with([victim, victim], torn), 2)

    def test_several_may_be_lost_at_once(self):
        # A host with workers 1 and 2 goes; worker 0 makes step 50 late.
        records = {worker: course(0, 50, 100.0) for worker in (0, 1, 2)}
        records[0] += course(50, 50, 100 + 50 * STEP + 0.5, view=2, size=1)
        event = gaps.Event("host", 100 + 49.5 * STEP, [0, 1, 2], victims=[1, 2])
        gap = self.gap(event, records)
        self.assertAlmostEqual(gap.ms, 500, places=3)
        self.assertEqual(gap.lost, 0)

    def test_a_hole_is_no_answer(self):
        records = killed()
        del records[0][50]
        event = gaps.Event("kill", 100 + 49.5 * STEP, [0, 1, 2], victims=[2])
        with self.assertRaisesRegex(gaps.Unclear, "step 50 is missing"):
            self.gap(event, records)

    def test_an_epochs_end_is_no_answer(self):
        records = killed(1.5)
        for worker in (0, 1):
            records[worker] = [s._replace(epoch=int(s.step > 50)) for s in records[worker]]
        event = gaps.Event("kill", 100 + 49.5 * STEP, [0, 1, 2], victims=[2])
        with self.assertRaises(gaps.EpochEnd):
            self.gap(event, records)
        self.assertTrue(gaps.on_epoch_end(event, records))
        self.assertFalse(gaps.on_epoch_end(event, killed()))

    def test_nobody_goes_on(self):
        records = {worker: course(0, 50, 100.0) for worker in (0, 1)}
        with self.assertRaisesRegex(gaps.Unclear, "no step afterwards"):
            self.gap(gaps.Event("kill", 101, [0, 1], victims=[1]), records)

    def test_join_counts_from_the_last_step_of_the_old_view(self):
        # Asked for at step 10, there at step 50; at size 3 a step takes twice as long, and that is not the event's.
        records = {worker: course(0, 50, 100.0, size=2) for worker in (0, 1)}
        for worker in (0, 1):
            start = records[worker][-1].t + 2 * STEP + 0.012
            records[worker] += course(50, 50, start, view=2, size=3, every=2 * STEP)
        records[2] = course(50, 50, records[0][50].t, view=2, size=3, every=2 * STEP)
        event = gaps.Event("join", 100 + 10 * STEP, [0, 1], newcomer=2)
        self.assertAlmostEqual(self.gap(event, records).ms, 12, places=3)

    def test_a_newcomer_that_nobody_has_seen_come(self):
        # The replacement is in step before the driver has noticed that the others went on.
        records = killed(0.030)
        for worker in (0, 1):
            records[worker] += course(100, 50, records[worker][-1].t + STEP + 0.012, view=3)
        records[3] = course(100, 50, records[0][100].t, view=3)
        event = gaps.Event("replacement", records[0][110].t, [0, 1], newcomer=3)
        self.assertAlmostEqual(self.gap(event, records).ms, 12, places=3)

    def test_a_newcomer_without_a_change_of_view(self):
        records = {worker: course(0, 50, 100.0) for worker in (0, 1)}
        records[2] = course(20, 30, 100 + 20 * STEP)
        with self.assertRaisesRegex(gaps.Unclear, "no change of view before step 20"):
            self.gap(gaps.Event("join", 100.0, [0, 1], newcomer=2), records)

    def test_a_quiet_span_shows_its_worst_step(self):
        records = {worker: course(0, 100, 100.0) for worker in (0, 1, 2)}
        late = records[1][60]
        records[1][60] = late._replace(t=late.t + 0.020)
        inside = gaps.Event("coordinator", 100 + 50 * STEP, [0, 1, 2], end=100 + 70 * STEP)
        before = gaps.Event("coordinator", 100 + 20 * STEP, [0, 1, 2], end=100 + 40 * STEP)
        self.assertAlmostEqual(self.gap(inside, records).ms, 20, places=3)
        self.assertAlmostEqual(self.gap(before, records).ms, 0, places=3)

    def test_evaluation_is_nobodys_delay(self):
        last = course(49, 1, 100 + 49 * STEP + 2)  # of its epoch, with an evaluation in its turn
        records = {0: course(0, 49, 100.0) + last + course(50, 50, 100 + 50 * STEP + 2, epoch=1)}
        span = gaps.Event("agent", 100 + 40 * STEP, [0], end=104.0)
        self.assertAlmostEqual(self.gap(span, records).ms, 0, places=3)


class Restarts(unittest.TestCase):
    def test_silence_and_lost_steps(self):
        before = [(100 + s * STEP, s, rank, 0) for s in range(130) for rank in (0, 1)]
        after = [(120 + s * STEP, 100 + s, rank, 1) for s in range(20) for rank in (0, 1)]
        gap = gaps.gap_of_restart(before + after, 0)
        self.assertAlmostEqual(gap.silence_ms, (20 - 129 * STEP) * 1e3, places=3)
        self.assertAlmostEqual(gap.ms, gap.silence_ms - STEP * 1e3, places=3)
        self.assertEqual(gap.lost, 30)
        with self.assertRaises(gaps.Unclear):
            gaps.gap_of_restart(before + after, 1)


class Files(unittest.TestCase):
    def test_lines_are_followed_and_torn_ones_wait(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "worker-0.jsonl"
            second = line(2)
            path.write_text(line(1) + "\n" + '{"kind":"event","t":1,"event":"killed","text":""}\n' + second[:30])
            records = gaps.Records(folder)
            self.assertEqual([s.step for s in records.poll()[0]], [1])
            with path.open("a") as file:
                file.write(second[30:] + "\n")
            self.assertEqual([s.step for s in records.poll()[0]], [1, 2])
            self.assertEqual(records.newest().step, 2)
            self.assertEqual(records.newest().left, (6400 - 3 * 64) / 64)
            self.assertEqual(records.newest().passed, 0.03)

    def test_members_are_those_of_the_newest_view(self):
        records = gaps.Records("nowhere")
        records.steps = killed()
        self.assertEqual(sorted(records.members()), [0, 1])
        self.assertEqual(sorted(gaps.Records("nowhere").members()), [])


if __name__ == "__main__":
    unittest.main()
