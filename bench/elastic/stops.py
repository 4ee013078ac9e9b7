#!/usr/bin/python3
"""Workers that do not run: stopped by SIGSTOP or frozen by a cgroup, for a moment or a minute, one of many or most of
them. How soon do the others go on, and does everybody come back? And workers that are merely starved, beside busy
loops: none may be left behind. See README.md."""

import contextlib
import multiprocessing
import os
import pathlib
import random
import signal
import statistics
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]
import flags  # noqa: E402  (found through the line above)
from job import Job  # noqa: E402
from processes import rounds  # noqa: E402

LENGTHS = [0.2, 0.3, 0.5, 1, 2, 5, 15, 60]  # seconds
# name: workers of the job, those that do not run for a while
CASES = {
    "the lowest of two": (2, [0]),
    "the other of two": (2, [1]),
    "one of three": (3, [1]),
    "two of three": (3, [0, 2]),
    "three of four": (4, [0, 1, 2]),
}


class Cgroup:
    """Freezes processes, with either version of cgroups."""

    def __init__(self, name):
        self.old = pathlib.Path("/sys/fs/cgroup/freezer").exists()
        unified = pathlib.Path("/sys/fs/cgroup/unified")
        root = pathlib.Path("/sys/fs/cgroup/freezer") if self.old else unified if unified.exists() else unified.parent
        self.group = root / f"pliant-stops-{os.getpid()}-{name}"

    def stop(self, pids):
        self.group.mkdir(exist_ok=True)
        for pid in pids:
            (self.group / "cgroup.procs").write_text(str(pid))
        self._set(True)

    def go_on(self, pids):
        self._set(False)
        for pid in pids:
            with contextlib.suppress(OSError):
                (self.group.parent / "cgroup.procs").write_text(str(pid))
        with contextlib.suppress(OSError):
            self.group.rmdir()

    def _set(self, frozen):
        if self.old:
            (self.group / "freezer.state").write_text("FROZEN" if frozen else "THAWED")
        else:
            (self.group / "cgroup.freeze").write_text("1" if frozen else "0")


class Signals:
    def stop(self, pids):
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)

    def go_on(self, pids):
        for pid in pids:
            os.kill(pid, signal.SIGCONT)


def gap_after(job, victims, begin, end):
    """The longest time between two steps of those who run, of which some lies in [begin, end]."""
    longest = 0
    for worker, own in job.records.steps.items():
        for before, after in zip(own, own[1:]):
            if worker not in victims and after.t > begin and before.t < end:
                longest = max(longest, after.t - before.t)
    return longest


def one_stop(job, way, workers, victims, length, rng):
    """Seconds until the others went on; all are back before it returns."""
    job.wait_steady(workers)
    time.sleep(rng.random() * 0.1)
    pids = [job.pids()[victim] for victim in victims]
    begin = time.time()
    way.stop(pids)
    try:
        time.sleep(length)
    finally:
        way.go_on(pids)
    end = time.time()
    job.wait("their return", 90, lambda: all(job.records.steps[v][-1].t > end + 0.1 for v in victims))
    job.wait_steady(workers)
    return gap_after(job, victims, begin, end)


def run_case(args, name, kind, place):
    """[(length of the stop, gap)], and why it failed, if it did."""
    workers, victims = CASES[name]
    way = Signals() if kind == "SIGSTOP" else Cgroup(name.replace(" ", "-"))
    command = [args.program, "--parameters", 1 << 20, "--compute-ms", 5, "--sleep", "--steps", 1 << 20]
    found, folder = [], flags.folder_in(place)
    try:
        with Job(args, folder, workers, 0, args.seed, command=command) as job:
            rng = random.Random(f"{args.seed} {name}")
            for length in rng.sample(args.lengths, len(args.lengths)):
                found.append((length, one_stop(job, way, workers, victims, length, rng)))
                print(f"{name}, {kind} of {length} s: {found[-1][1]:.2f} s", file=sys.stderr, flush=True)
            job.stop()
            seen = job.verify()
            if seen["workers"] != workers:
                raise rounds.Failure(f"{seen['workers']} workers instead of {workers}: somebody had to be replaced")
    except (rounds.Failure, OSError, KeyError) as why:
        return found, str(why)
    return found, ""


def stops(args, place):
    """Rows of the table, and what failed. The cases run beside each other: nearly all of their time is waiting."""
    found, failures = {}, []
    for kind in args.kinds:
        with multiprocessing.Pool(len(CASES)) as pool:
            seen = pool.starmap(run_case, [(args, name, kind, place) for name in CASES])
            pool.close()
            pool.join()  # they end by themselves: told to terminate, one may wait for a lock that another one holds
        for name, (gaps, why) in zip(CASES, seen):
            found[name, kind] = gaps
            if why:
                failures.append((name, kind, why))
    rows = []
    for (name, kind), seen in found.items():
        gaps = [gap for _, gap in seen]
        if gaps:
            rows.append([name, kind, str(len(gaps)), f"{statistics.median(gaps):.2f}", f"{max(gaps):.2f}"])
    everything = [gap for seen in found.values() for _, gap in seen]
    if everything:
        rows.append(["all", "", str(len(everything)), f"{statistics.median(everything):.2f}", f"{max(everything):.2f}"])
    return rows, failures


# ---- starved, not stopped ----

STARVED = 8  # workers


def spin():
    while True:
        pass


@contextlib.contextmanager
def few_cores(count):
    """Whatever is started meanwhile shares so many cores."""
    before = os.sched_getaffinity(0)
    if len(before) < count:
        raise rounds.Failure(f"{count} cores are asked for, there are {len(before)}")
    os.sched_setaffinity(0, sorted(before)[:count])
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def starved(args, place):
    """A line about many workers beside busy loops on few cores."""
    with few_cores(args.cores):
        return beside_loops(args, flags.folder_in(place))


def beside_loops(args, folder):
    loops = [multiprocessing.Process(target=spin, daemon=True) for _ in range(args.cores * args.loops)]
    command = [args.program, "--parameters", 1 << 16, "--compute-ms", 0, "--buckets", 1, "--steps", args.starved - 10]
    for loop in loops:
        loop.start()
    try:
        with Job(args, folder, STARVED, 0, args.seed, command=command) as job:
            job.wait_end(args.limit)
            seen = job.verify()
    finally:
        for loop in loops:
            loop.kill()
    if seen["views"] != 1 or seen["workers"] != STARVED:
        raise rounds.Failure(f"{seen['views']} views of {seen['workers']} workers, though nobody was stopped")
    gaps = sorted(b.t - a.t for own in job.records.steps.values() for a, b in zip(own, own[1:]))
    return (f"{STARVED} workers beside {args.cores * args.loops} busy loops on {args.cores} cores: {seen['steps']} steps in one view, the "
            f"median {gaps[len(gaps) // 2] * 1e3:.1f} ms, the longest {gaps[-1]:.2f} s; nobody was left behind.")


def everything(args, place):
    rows, failures, about = [], [], ""
    if args.lengths:
        rows, failures = stops(args, place)
    if args.starved:
        try:
            about = starved(args, place)
        except rounds.Failure as why:
            failures.append(("starved", f"{args.starved} steps", str(why)))
    parts = [rounds.report_head("Workers that do not run", {"Pliant": rounds.first_line([args.pliant, "--version"])}),
             "" if not args.lengths else "examples/synthetic, steps of 5 ms (asleep). Each case has one stop of each length of "
             f"{', '.join(f'{length:g}' for length in args.lengths)} s, in random order; the gap is the longest time "
             "between two steps of those who run. All come back by themselves, none is replaced, and every job passes "
             "`pliant verify`. The cases run at the same time.",
             rounds.table(["who", "how", "stops", "median gap, s", "worst gap, s"], rows) if rows else "",
             about, rounds.failures_text(failures)]
    return "\n\n".join(part for part in parts if part) + "\n", failures


def main():
    parser = flags.parser_of(__doc__)
    parser.add_argument("--lengths", type=rounds.listed(float), default=LENGTHS, help="of stops, in seconds")
    parser.add_argument("--kinds", type=rounds.listed(str), default=["SIGSTOP"], help="SIGSTOP, cgroup (as root)")
    parser.add_argument("--starved", type=int, default=30000, help="steps of 8 workers beside busy loops; 0: none")
    parser.add_argument("--cores", type=int, default=2, help="that these have; default 2")
    parser.add_argument("--loops", type=int, default=1, help="busy loops for each of these cores; default 1")
    parser.add_argument("--limit", type=float, default=3000, help="seconds for these steps")
    return flags.drive(parser.parse_args(), "stops", everything)


if __name__ == "__main__":
    sys.exit(main())
