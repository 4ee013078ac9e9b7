"""What the records of a run say about an event: how long the survivors were silent, and which steps were lost.

Pure functions over step records, so that gaps_test.py can try them on made-up ones. Times are in seconds, as in the
records; a gap is in milliseconds.

An event's *window* on one worker begins with its last record before the event and ends with its first record in the
view that follows. The gap is the window's length less an ordinary step for each step inside it: all the time that was
lost, whether it was lost at once or in pieces.
"""

import bisect
import collections
import dataclasses
import json
import pathlib
import statistics
import typing

FEW = 20  # intervals of one size that make a median; below, the run's median stands for it


class Unclear(Exception):
    """The records say nothing about the event, and why."""


class EpochEnd(Unclear):
    """The event fell on the end of an epoch: the evaluation there would be counted as part of the gap."""


class Step(typing.NamedTuple):
    """One line of a worker's records."""
    t: float  # Unix seconds, at the end of the step
    step: int
    view: int
    size: int
    epoch: int
    left: float  # steps to the end of the epoch
    passed: float = 0.0  # epochs since the start


@dataclasses.dataclass
class Event:
    kind: str
    t: float  # when it was done
    members: list  # of the view before
    victims: list = dataclasses.field(default_factory=list)  # who is gone afterwards
    step: int | None = None  # a fault's: the step that the victim does not finish
    end: float | None = None  # of events that change no view: how long to look
    newcomer: int | None = None
    own_s: float | None = None  # the newcomer's time from its process's start to its first recorded step


@dataclasses.dataclass
class Gap:
    ms: float  # beyond ordinary steps, of the survivor that was silent longest
    silence_ms: float  # the same with one ordinary step: what stands between two steps
    lost: int  # steps that had to be made again


def parse(line):
    """A step from a line, or None if the line tells of something else."""
    seen = json.loads(line)
    if seen.get("kind") != "step" or "by" in seen:  # written for another worker, which was lost
        return None
    ends = [end for part in seen["samples"] for _, end in part["ranges"]]
    left = (seen["dataset"] - max(ends)) / max(seen["global_batch"], 1) if ends else float("inf")
    passed = seen["epoch"] + (max(ends) / seen["dataset"] if ends else 0.0)
    return Step(seen["t"], seen["step"], seen["view"], seen["size"], seen["epoch"], left, passed)


class Follower:
    """New lines of a folder's files, read as they grow. A line counts once its newline is there."""

    def __init__(self, folder, pattern):
        self.folder, self.pattern = pathlib.Path(folder), pattern
        self._read = collections.Counter()  # {path: bytes}

    def lines(self):
        """(path, line) of all that is new."""
        for path in sorted(self.folder.glob(self.pattern)):
            with path.open("rb") as file:
                file.seek(self._read[path])
                whole, newline, _ = file.read().rpartition(b"\n")
            self._read[path] += len(whole) + len(newline)
            for line in whole.splitlines():
                yield path, line


class Records:
    """The steps in DIR/worker-ID.jsonl of a running job."""

    def __init__(self, folder):
        self.steps = {}  # {worker: [Step]} in the order written
        self._files = Follower(folder, "worker-*.jsonl")

    def poll(self):
        for path, line in self._files.lines():
            own = self.steps.setdefault(int(path.stem.removeprefix("worker-")), [])
            step = parse(line)
            if step:
                own.append(step)
        return self.steps

    def members(self):
        """{worker: its steps} of the newest view, as far as they have recorded a step of it."""
        newest = max((own[-1].view for own in self.steps.values() if own), default=None)
        return {worker: own for worker, own in self.steps.items() if own and own[-1].view == newest}

    def newest(self):
        """The last step of anybody."""
        return max((own[-1] for own in self.steps.values() if own), key=lambda step: (step.step, step.t), default=None)


def ordinary(records):
    """{size: seconds of an ordinary step}, with the median of all under None. More workers than cores make steps of
    other sizes slower for reasons that are not the event's."""
    seen = collections.defaultdict(list)
    for own in records.values():
        for before, after in zip(own, own[1:]):
            if before.view == after.view and before.epoch == after.epoch and after.step == before.step + 1:
                seen[after.size].append(after.t - before.t)
    if not seen:
        raise Unclear("no two steps follow each other")
    medians = {size: statistics.median(times) for size, times in seen.items() if len(times) >= FEW}
    medians[None] = statistics.median(time for times in seen.values() for time in times)
    return medians


def step_time(medians, size):
    return medians.get(size, medians[None])


def evaluated(records):
    """Steps whose records come late for a good reason: they end an epoch, and the evaluation is part of their turn."""
    return {before.step for own in records.values() for before, after in zip(own, own[1:]) if after.epoch > before.epoch}


def excess(window, medians):
    """Seconds beyond an ordinary step each."""
    return sum(after.t - before.t - step_time(medians, after.size) for before, after in zip(window, window[1:]))


def window_of(own, event, records):
    """One survivor's records from the last before the event up to the first of the next view."""
    if event.newcomer is not None:
        return window_of_arrival(own, records[event.newcomer])
    if event.step is None:
        first = bisect.bisect_right(own, event.t, key=lambda step: step.t) - 1
    else:
        first = next((at for at, step in enumerate(own) if step.step == event.step - 1), -1)
    if first < 0:
        raise Unclear("a survivor has no record from before")
    for at in range(first + 1, len(own)):
        if own[at].view > own[first].view:
            return own[first:at + 1]
    raise Unclear("a survivor recorded no step afterwards")


def window_of_arrival(own, newcomers):
    """The last step without the newcomer and its first one. When that was only the records tell: it may be there before
    anybody has looked for it."""
    if not newcomers:
        raise Unclear("the newcomer recorded no step")
    first = newcomers[0].step
    window = [step for step in own if step.step in (first - 1, first)]
    if len(window) != 2 or window[0].view == window[1].view:
        raise Unclear(f"no change of view before step {first}")
    return window


def lost_by(window):
    """Steps that a worker made again. A hole would be a fault of the records."""
    again = 0
    for before, after in zip(window, window[1:]):
        if after.step > before.step + 1:
            raise Unclear(f"step {before.step + 1} is missing in the records")
        again += before.step + 1 - after.step
    return again


def lost_with(victims, windows):
    """Steps that only victims know of, and that others had to make again or left out."""
    known = {step.step for window in windows for step in window}
    before = min(window[0].step for window in windows)
    theirs = {step.step for own in victims for step in own if before < step.step <= max(known)}
    return len(theirs - known)


def gap_at_change(event, records, medians):
    """Of an event after which the survivors go on in another view."""
    survivors = [records[worker] for worker in event.members if worker not in event.victims]
    if not survivors:
        raise Unclear("nobody survived")
    windows = [window_of(own, event, records) for own in survivors]
    late = evaluated(records)
    if any(step.step in late for window in windows for step in window[1:]):
        raise EpochEnd("it fell on the end of an epoch")
    longest = max(windows, key=lambda window: excess(window, medians))
    ms = excess(longest, medians) * 1e3
    lost = max(map(lost_by, windows)) + lost_with([records.get(victim, []) for victim in event.victims], windows)
    return Gap(ms, ms + step_time(medians, longest[-1].size) * 1e3, lost)


def gap_in_span(event, records, medians):
    """Of an event that should change nothing: the worst single step of anybody until `event.end`."""
    worst, size, late = None, None, evaluated(records)
    for worker in event.members:
        own = records[worker]
        first = max(bisect.bisect_right(own, event.t, key=lambda step: step.t) - 1, 0)
        for before, after in zip(own[first:], own[first + 1:]):
            if before.t > event.end:
                break
            if after.step not in late:
                lost = excess((before, after), medians)
                worst, size = max((worst, size), (lost, after.size)) if worst is not None else (lost, after.size)
    if worst is None:
        raise Unclear("no step was recorded after it")
    return Gap(worst * 1e3, (worst + step_time(medians, size)) * 1e3, 0)


def gap_of(event, records, medians):
    return (gap_at_change if event.end is None else gap_in_span)(event, records, medians)


def on_epoch_end(event, records):
    try:
        gap_of(event, records, {None: 0.0})
    except EpochEnd:
        return True
    return False


def fault_event(kind, victim, step, records):
    """The event that an order to die in a step has caused. A worker writes down a step when the next one is complete:
    of the step before its last the victim has left nothing."""
    members = sorted(worker for worker, own in records.items() if any(seen.step == step - 2 for seen in own))
    if victim not in members:
        raise Unclear(f"worker {victim} was not there in step {step}")
    if records[victim][-1].step > step:
        raise Unclear(f"worker {victim} survived step {step}")
    return Event(kind, 0.0, members, victims=[victim], step=step)


def gap_of_restart(records, restart):
    """torchrun's: every worker is started anew, so the silence is between the last step of one start and the first of
    the next, on whichever worker. `records` are (t, step, rank, restart)."""
    before = [seen for seen in records if seen[3] == restart]
    after = [seen for seen in records if seen[3] == restart + 1]
    if not before or not after:
        raise Unclear("no steps on both sides of the restart")
    silence = min(seen[0] for seen in after) - max(seen[0] for seen in before)
    step = restart_step_time(records)
    lost = max(seen[1] for seen in before) + 1 - min(seen[1] for seen in after)
    return Gap((silence - step) * 1e3, silence * 1e3, max(lost, 0))


def restart_step_time(records):
    """Seconds of an ordinary step under torchrun."""
    last, times = {}, []
    for t, step, rank, restart in records:
        if last.get((rank, restart), (0, None))[1] == step - 1:
            times.append(t - last[rank, restart][0])
        last[rank, restart] = (t, step)
    if not times:
        raise Unclear("no two steps follow each other")
    return statistics.median(times)
