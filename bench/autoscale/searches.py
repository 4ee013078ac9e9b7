#!/usr/bin/env python3
"""The short search beside the published one, on jobs whose speed is known and in a cluster that is not there."""

import argparse
import pathlib
import random
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import rounds

MOST = 32
# name: knee (0: none), efficiency that is asked for
CURVES = {"knee at 5": (5, 0.1), "knee at 8": (8, 0.1), "knee at 16": (16, 0.1), "knee at 24": (24, 0.1),
          "smooth": (0, 0.5)}
# Where the smooth curve's next worker brings half of what one there brings, for comparison.
BEST = {"smooth": 18}
SEARCHES = ["short", "published"]


def write_trace(path, seed):
    """A walk between 3 and all workers, with another capacity every 20 seconds."""
    chance, capacity = random.Random(seed), 24
    with path.open("w") as file:
        for i in range(1000):
            file.write(f"{20 * i},{capacity},1\n")
            capacity = max(3, min(MOST, capacity + chance.randint(-8, 8)))


def run(args, curve, search, start, noise, seed, steps, trace=None):
    knee, efficiency = CURVES[curve]
    flags = ["--knee", knee, "--max", MOST, "--from", start, "--noise", noise, "--seed", seed, "--steps", steps]
    if search:
        flags += ["--policy", f"autoscale:max={MOST},search={search},efficiency={efficiency}"]
    if trace:
        flags += ["--trace", trace]
    return rounds.last_json(rounds.run([args.program, *flags], 120))


def spread(values, form):
    low, middle, high = min(values), sorted(values)[len(values) // 2], max(values)
    return form(middle) if form(low) == form(high) else f"{form(middle)} ({form(low)} … {form(high)})"


def row(names, answers, known, with_step):
    times = [answer["seconds"] / known["seconds"] for answer in answers]
    work = [answer["worker_seconds"] / known["worker_seconds"] for answer in answers]
    where = [spread([answer["end"] for answer in answers], str), spread([answer["step"] for answer in answers], str)]
    return [*names, *(where if with_step else []), spread([answer["changes"] for answer in answers], str),
            spread([answer["away"] for answer in answers], lambda share: f"{100 * share:.1f}"),
            spread(times, lambda ratio: f"{ratio:.3f}"), spread(work, lambda ratio: f"{ratio:.3f}")]


def free_rows(args, noise, seeds):
    rows = []
    for curve in CURVES:
        best = BEST.get(curve, CURVES[curve][0])
        known = run(args, curve, None, best, 0, 1, args.steps)
        for start in args.starts:
            for search in SEARCHES:
                answers = [run(args, curve, search, start, noise, seed, args.steps) for seed in range(1, seeds + 1)]
                rows.append(row([curve, str(start), search], answers, known, True))
    return rows


def spot_rows(args, folder):
    rows, traces = [], []
    for seed in range(1, args.traces + 1):
        traces.append(folder / f"spot-{seed}.csv")
        write_trace(traces[-1], seed)
    for curve in CURVES:
        best = BEST.get(curve, CURVES[curve][0])
        known = [run(args, curve, None, best, 0, 1, 10 * args.steps, trace) for trace in traces]
        for search in SEARCHES:
            answers = [run(args, curve, search, 2, args.noise, 1, 10 * args.steps, trace) for trace in traces]
            for answer, fixed in zip(answers, known):
                answer["seconds"] /= fixed["seconds"]
                answer["worker_seconds"] /= fixed["worker_seconds"]
            rows.append(row([curve, search], answers, {"seconds": 1, "worker_seconds": 1}, False))
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=2000, help="of a job at its knee; ten times as many with a trace")
    parser.add_argument("--starts", type=rounds.listed(int), default=[2, 32])
    parser.add_argument("--noise", type=float, default=0.05)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--traces", type=int, default=5)
    parser.add_argument("--out", type=pathlib.Path, help="write the result as Markdown")
    parser.add_argument("--program", default="build/dev/bench/autoscale/searches")
    args = parser.parse_args()
    rounds.stop_cleanly_on_sigterm()
    head = ["curve", "from", "search", "ends at", "after steps", "changes", "away, %", "time", "worker-seconds"]
    quiet = free_rows(args, 0, 1)
    noisy = free_rows(args, args.noise, args.seeds)
    with tempfile.TemporaryDirectory() as folder:
        spot = spot_rows(args, pathlib.Path(folder))
    text = "\n\n".join([
        rounds.report_head("Two searches for a job's size", {}),
        f"A job of {args.steps} steps of 0.1 s (at its knee) in a simulated cluster of {MOST} workers, where a worker that "
        "is asked for is there 2 s later and a change costs 20 ms. Speeds are known: in proportion to the workers up to a "
        "knee, or smooth, 100 k / (1 + 0.05 (k − 1)), where half of what a worker there brings is asked of one that is "
        f"added (that holds up to {BEST['smooth']}). *Away*: the share of the run with another size than the last one. "
        "Time and worker-seconds are compared with a job that has the right size from the beginning.",
        "## Every step takes the same", rounds.table(head, quiet),
        f"## Steps differ by up to {100 * args.noise:.0f} %",
        f"The median over {args.seeds} seeds (lowest … highest).", rounds.table(head, noisy),
        "## Capacity comes and goes",
        f"Ten times as many steps, from 2 workers, with the same noise; every 20 s another capacity between 3 and {MOST}. "
        f"The median over {args.traces} traces (lowest … highest). Here *away* does not count where there was no capacity "
        "for more, and the job that knows its size is given what the trace has, too.",
        rounds.table(["curve", "search", *head[5:]], spot)]) + "\n"
    print(text)
    if args.out:
        args.out.write_text(text)


if __name__ == "__main__":
    main()
