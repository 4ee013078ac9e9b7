"""What a run of events leaves: their gaps, the bars that they are held against, and the table of both."""

import contextlib
import dataclasses
import pathlib
import tempfile

import gaps
from processes import rounds

ENDLESS = 10000  # epochs: the run is stopped when its events are done


@dataclasses.dataclass
class Bar:
    """What an event may cost. The limit holds for the median of the events, or, if `every`, for each of them."""
    limit: float
    every: bool = False

    def text(self):
        return f"{'each' if self.every else 'median'} ≤ {self.limit:g} ms, none lost"

    def met(self, seen):
        cost = (max if self.every else lambda costs: rounds.spread(costs)[0])([gap.ms for gap in seen])
        return cost <= self.limit and max(gap.lost for gap in seen) == 0


class Results:
    """All that was measured with one number of workers."""

    def __init__(self):
        self.gaps = {}  # {kind: {round: [Gap]}}
        self.own_s = []  # newcomers', from the process's start to the first recorded step
        self.steps_ms = {}  # {system: {round: ms}}
        self.again = 0  # events repeated because they fell on the end of an epoch

    def add(self, kind, turn, gap):
        self.gaps.setdefault(kind, {}).setdefault(turn, []).append(gap)

    def all(self, kind):
        return [gap for of_round in self.gaps.get(kind, {}).values() for gap in of_round]

    def silences(self, kind):
        """{round: median}"""
        return {turn: rounds.spread([gap.silence_ms for gap in seen])[0]
                for turn, seen in self.gaps.get(kind, {}).items()}


def do_all(job, kinds, actions, times, rng, results):
    """Every kind of event, several times, in random order; what fell on the end of an epoch once more."""
    queue = [kind for kind in kinds for _ in range(times)]
    rng.shuffle(queue)
    seen, again = [], times  # so often at most
    for kind in queue:
        caused = actions[kind](job, rng)
        seen += caused
        if again and any(gaps.on_epoch_end(event, job.records.steps) for event in caused):
            again -= 1
            results.again += 1
            queue.append(kind)
    return seen


def evaluate(seen, records, workers, turn, results, note):
    """Gaps of the events of a run that has passed verification, each told to `note`; of some the records may not tell:
    why, in a list."""
    medians, unclear = gaps.ordinary(records), []
    results.steps_ms.setdefault("pliant", {}).setdefault(turn, gaps.step_time(medians, workers) * 1e3)
    for event in seen:
        try:
            gap = gaps.gap_of(event, records, medians)
        except gaps.EpochEnd:
            continue
        except gaps.Unclear as why:
            unclear.append(f"{event.kind}: {why}")
            continue
        results.add(event.kind, turn, gap)
        results.own_s += [event.own_s] if event.own_s is not None else []
        note(event, gap)
    return unclear


# ---- what came out ----

def figure(value, digits):
    return f"{value:.0f}" if abs(value) >= 10**digits else f"{value:.{digits}g}"


def range_text(values, digits=3):
    """median (lowest … highest)"""
    seen = rounds.spread(values)
    return "{} ({} … {})".format(*(figure(value, digits) for value in seen)) if seen else "–"


def lost_text(seen):
    return range_text([gap.lost for gap in seen]) if any(gap.lost for gap in seen) else "0"


def events_table(results, names, bars):
    """A row for each kind in `names` that was seen, in that order."""
    head = ["event", "events", "gap, ms", "steps lost", "bar", "met"]
    rows = []
    for kind, what in names.items():
        seen = results.all(kind)
        if not seen:
            continue
        bar = bars.get(kind)
        rows.append([what, str(len(seen)), range_text([gap.ms for gap in seen], 4), lost_text(seen),
                     bar.text() if bar else "–", ("yes" if bar.met(seen) else "NO") if bar else "–"])
    return rounds.table(head, rows) if rows else ""


def add_job_flags(parser):
    """The flags of every driver that watches jobs."""
    parser.add_argument("--batch", type=int, default=64, help="per worker")
    parser.add_argument("--seed", type=int, default=42, help="of the jobs and of the choice of events")
    parser.add_argument("--out", type=pathlib.Path, help="write the result as Markdown")
    parser.add_argument("--keep", type=pathlib.Path, help="a new folder for all records and output, to be kept")
    parser.add_argument("--json", action="store_true", help="print a JSON line for each result instead of the tables")
    parser.add_argument("--pliant", default="build/dev/apps/pliant/pliant")
    parser.add_argument("--trainer", default="build/dev/examples/fashion_mnist/fashion_mnist")


def workplace(args):
    if not args.keep:
        return tempfile.TemporaryDirectory()
    args.keep.mkdir(parents=True)
    return contextlib.nullcontext(args.keep)
