#!/usr/bin/python3
"""The pure parts of losses.py and strangers.py, on made-up data where the right answer is known."""

import pathlib
import sys
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent), str(HERE.parent / "elastic")]
import gaps  # noqa: E402  (found through the line above)
import losses  # noqa: E402
import strangers  # noqa: E402

STEP = 0.04


def course(first, count, start, epoch=0):
    return [gaps.Step(start + at * STEP, first + at, 1, 3, epoch, 100) for at in range(count)]


class Losses(unittest.TestCase):
    def test_a_majority_must_remain(self):
        self.assertEqual(losses.can_be_lost({"a": [0], "b": [1], "c": [2, 3, 4]}), ["a", "b"])

    def test_half_is_enough_with_the_lowest_id(self):
        self.assertEqual(losses.can_be_lost({"a": [0], "b": [1], "c": [2, 3]}), ["a", "b", "c"])
        self.assertEqual(losses.can_be_lost({"a": [4], "b": [5], "c": [2, 3]}), ["a", "b"])


class Strangers(unittest.TestCase):
    def test_steps_of_a_phase(self):
        records = {0: course(0, 100, 100.0)}
        times = strangers.step_times(records, 100 + 9.5 * STEP, 100 + 20.5 * STEP)
        self.assertEqual(len(times), 10)
        self.assertAlmostEqual(times[0], STEP * 1e3, places=3)

    def test_evaluation_is_no_step(self):
        late = 100 + 10 * STEP + 5.0
        records = {0: course(0, 10, 100.0) + course(10, 1, late) + course(11, 10, late + STEP, epoch=1)}
        times = strangers.step_times(records, 0, 1000)
        self.assertEqual(len(times), 19)
        self.assertAlmostEqual(max(times), STEP * 1e3, places=3)

    def test_another_view_is_noticed(self):
        phases = [strangers.Phase("quiet", 0, 100.0, 101.0)]
        records = {0: course(0, 100, 100.0)}
        self.assertTrue(strangers.is_one_view(records, phases))
        records[0][5] = records[0][5]._replace(view=2)
        self.assertFalse(strangers.is_one_view(records, phases))

    def test_a_leak_counts_and_a_single_growth_does_not(self):
        def outcome(grown):
            phases = [strangers.Phase("attacked", at, grown_mib={7: mib}) for at, mib in enumerate(grown)]
            return strangers.Outcome(phases, {}, None, {}, 0, 0, {})
        self.assertEqual(strangers.growth_mib(outcome([0, 0, 48, 0, 0]), 7, "attacked"), 0)
        self.assertEqual(strangers.growth_mib(outcome([2, 2, 50, 2, 2]), 7, "attacked"), 10)


if __name__ == "__main__":
    unittest.main()
