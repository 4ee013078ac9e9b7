#!/usr/bin/python3
"""Two builds of Pliant in turn: what events cost those who stay, how long steps and all-reduces take. Is the one worse
than the other in anything? See README.md."""

import argparse
import collections
import pathlib
import random
import statistics
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]
import events as doings  # noqa: E402  (found through the line above)
import gaps  # noqa: E402
from job import Job  # noqa: E402
from processes import rounds  # noqa: E402

REDUCTIONS = [(2, 4 << 10), (2, 1 << 20), (2, 64 << 20), (4, 1 << 20)]  # ranks, bytes
MEMORIES = ["registered", "plain"]


def run_events(args, build, turn, folder):
    """{what: milliseconds} of one job with each event once, in random order."""
    pliant, program = build
    args.pliant = pliant
    rng = random.Random(args.seed + turn)
    command = [program, "--parameters", args.parameters, "--compute-ms", args.compute_ms, "--steps", 1 << 20]
    with Job(args, folder, args.workers, 0, args.seed, command=command) as job:
        seen = [event for name in rng.sample(args.events, len(args.events)) for event in doings.ACTIONS[name](job, rng)]
        job.stop()
        job.verify()
    medians = gaps.ordinary(job.records.steps)
    found = {event.kind: gaps.gap_of(event, job.records.steps, medians).ms for event in seen}
    return {**{f"{kind}, beyond a step": value for kind, value in found.items()},
            f"a step of {args.workers}": gaps.step_time(medians, args.workers) * 1e3}


def run_reductions(args, build):
    """{what: milliseconds}"""
    found = {}
    for ranks, size in args.reductions:
        for memory in MEMORIES:
            argv = [build[0], "bench", "allreduce", "--ranks", ranks, "--bytes", size, "--memory", memory, "--json"]
            result = rounds.last_json(rounds.run(argv, 300))
            if result.get("verified") is not True:
                raise rounds.Failure("a result was wrong")
            found[f"all-reduce, {ranks} ranks, {rounds.size_text(size)}, {memory}"] = result["p50_ms"]
    return found


def sweep(args, place):
    found, failures = collections.defaultdict(dict), []
    progress = rounds.Progress(args.rounds * len(args.builds))
    for turn in range(args.rounds):
        for name in rounds.in_turn(list(args.builds), turn):
            where = f"{name}, round {turn + 1}"
            try:
                folder = pathlib.Path(tempfile.mkdtemp(dir=place)).resolve()
                seen = {}
                if args.events:
                    seen.update(run_events(args, args.builds[name], turn, folder))
                seen.update(run_reductions(args, args.builds[name]))
            except (rounds.Failure, gaps.Unclear) as why:
                failures.append((name, where, str(why)))
                progress.line(f"{where}: {why}")
                continue
            for what, value in seen.items():
                found[what].setdefault(name, {})[turn] = value
            progress.line(where)
    return found, failures


def cell(values):
    middle, low, high = rounds.spread(list(values))
    return f"{middle:.3g} ({low:.3g} … {high:.3g})"


def verdict(this, other):
    """The median of what the rounds say, and whether they agree on it. Of a gap, which may be zero, differences count."""
    both = [turn for turn in this if turn in other]
    if min(min(this.values()), min(other.values())) > 0.01 * max(other.values()):
        ratios = sorted(this[turn] / other[turn] for turn in both)
        text = f"{statistics.median(ratios):.2f} ({ratios[0]:.2f} … {ratios[-1]:.2f})"
        return text, "worse" if ratios[0] > 1 else "better" if ratios[-1] < 1 else "alike"
    apart = sorted(this[turn] - other[turn] for turn in both)
    text = f"{statistics.median(apart):+.1f} ms ({apart[0]:+.1f} … {apart[-1]:+.1f})"
    return text, "worse" if apart[0] > 0 else "better" if apart[-1] < 0 else "alike"


def report(args, found, failures):
    rows = []
    for what, by_build in found.items():
        if len(by_build) == 2:
            this, other = by_build["this"], by_build["other"]
            rows.append([what, cell(other.values()), cell(this.values()), *verdict(this, other), str(len(this))])
    parts = [rounds.report_head("Two versions in turn", {name: rounds.first_line([build[0], "--version"]) + f" ({build[0]})"
                                                         for name, build in args.builds.items()}),
             f"Milliseconds, median (lowest … highest); {args.workers} workers of examples/synthetic with "
             f"{args.parameters} bytes of parameters and {args.compute_ms:g} ms of work. *This against other* is by "
             "rounds; it is *worse* or *better* where all rounds say so.",
             rounds.table(["what", "other", "this", "this against other", "", "rounds"], rows),
             rounds.failures_text(failures)]
    return "\n\n".join(part for part in parts if part) + "\n"


def main():
    build = rounds.ROOT / "build" / "dev"
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pliant", default=str(build / "apps/pliant/pliant"))
    parser.add_argument("--program", default=str(build / "examples/synthetic/synthetic"), help="examples/synthetic")
    parser.add_argument("--against", nargs=2, metavar=("PLIANT", "PROGRAM"), required=True, help="the other build")
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--events", type=rounds.listed(str), default=list(doings.ACTIONS), help="default: all")
    parser.add_argument("--no-reductions", dest="reductions", action="store_const", const=[], default=REDUCTIONS)
    parser.add_argument("--workers", type=int, default=3)
    parser.add_argument("--parameters", type=rounds.parse_size, default=3400 << 10, help="bytes")
    parser.add_argument("--compute-ms", type=float, default=5)
    parser.add_argument("--seed", type=int, default=42)
    parser.add_argument("--out", type=pathlib.Path, help="write the report there, too")
    args = parser.parse_args()
    args.json = False
    args.builds = {"this": [args.pliant, args.program], "other": args.against}

    def everything():
        with tempfile.TemporaryDirectory(prefix="pliant-versions-") as place:
            found, failures = sweep(args, place)
            return report(args, found, failures), failures
    return rounds.drive(args, everything)


if __name__ == "__main__":
    sys.exit(main())
