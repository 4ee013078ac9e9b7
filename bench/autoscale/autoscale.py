#!/usr/bin/env python3
"""What autoscaling is worth: knees that are found, stragglers that are replaced, changes against restarts, jobs that find
their size against all fixed sizes, and plans against what came true. Computing is sleep, where speed is the question."""

import argparse
import concurrent.futures
import pathlib
import random
import re
import statistics
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import jobs
import rounds

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "adaptive"))
import chart

DATA = "/usr/share/datasets/fashion-mnist"


def synthetic(*words):
    return [jobs.SYNTHETIC, "--sleep", "--warmup", 0, "--buckets", 1, "--parameters", 65536, *words]


def percent(share):
    return f"{100 * share:.1f} %"


def in_parallel(args, work):
    """`work`: {key: function}. So many at a time, in random order."""
    keys = list(work)
    random.Random(1).shuffle(keys)
    progress = rounds.Progress(len(keys))
    done = {}
    with concurrent.futures.ThreadPoolExecutor(args.parallel) as pool:
        futures = {pool.submit(work[key]): key for key in keys}
        for future in concurrent.futures.as_completed(futures):
            done[futures[future]] = future.result()
            progress.line(str(futures[future]))
    return done


# ---- knees ----

def knees(args):
    """From one worker to the knee: where it ends, and how much of the run it took to find out."""
    def one(knee):
        return jobs.run(1, ["--max", 8, "--policy", "autoscale:max=8"],
                        synthetic("--knee", knee, "--compute-ms", args.compute_ms, "--steps", args.steps))
    keys = [(knee, turn) for knee in args.knees for turn in range(args.rounds)]
    seen = in_parallel(args, {key: lambda key=key: one(key[0]) for key in keys})
    rows = []
    for knee in args.knees:
        runs = [seen[knee, turn] for turn in range(args.rounds)]
        ends = [run.sizes[-1] for run in runs]
        last = [max((i for i, size in enumerate(run.sizes) if size != run.sizes[-1]), default=-1) for run in runs]
        shares = [(run.rows[at + 1]["t"] - run.rows[0]["t"]) / (run.rows[-1]["t"] - run.rows[0]["t"])
                  for run, at in zip(runs, last)]
        rows.append([str(knee), ", ".join(map(str, ends)), ", ".join(str(at + 1) for at in last),
                     ", ".join(percent(share) for share in shares)])
    return ("Jobs that find their knee",
            f"`synthetic --sleep`: a step takes {args.compute_ms} ms up to the knee, and that times (workers / knee)² "
            f"beyond it; {args.steps} steps, from 1 worker, at most 8. Searching: from the first step to the last change "
            "of size. Each figure is a run.",
            rounds.table(["knee", "ends at", "last change in step", "of the run"], rows))


# ---- stragglers ----

def stragglers(args):
    """One of four computes at half the speed from step 40 on; a spare is warm."""
    rows = []
    progress = rounds.Progress(args.rounds * 2)
    for remedy, flags in (("replace", ["--spare", 1]), ("share", [])):
        backs, befores, afters = [], [], []
        for _ in range(args.rounds):
            run = jobs.run(4, [*flags, "--policy", f"stragglers:remedy={remedy}"],
                           synthetic("--compute-ms", 100, "--slow", "2:0.5@40", "--steps", 120))
            rates = [run.samples(row) / took for row, took in zip(run.rows[1:], run.durations)]  # of step i + 1
            usual = statistics.median(rates[9:38])
            good = [rate >= 0.9 * usual for rate in rates]
            # The step after which at least nine of ten are as fast as before.
            back = next((i for i in range(39, len(good) - 10) if sum(good[i:i + 10]) >= 9 and good[i]), None)
            backs.append(back + 1 - 40 if back is not None else None)
            befores.append(statistics.median(rates[40:44]) / usual)
            afters.append(statistics.median(rates[-30:]) / usual)
            progress.line(f"{remedy}: back after {backs[-1]}")
        rows.append([remedy, rounds.ratio_text(befores), ", ".join(str(back) if back else "never" for back in backs), rounds.ratio_text(afters)])
    return ("A straggler at half speed",
            "`synthetic --sleep`, 4 workers, steps of 100 ms; worker 2 has half the speed from step 40 on. Throughput is "
            "compared with the median of the steps before. Back: steps from the first slow one to the first of ten of "
            "which nine have 0.9 of it; with shares by speed, 3.5 / 4 = 0.875 is the most there can be. `pliant verify` found every step and every sample once, in each run.",
            rounds.table(["remedy", "while it is slow", "back to 0.9 after steps", "at the end"], rows))


# ---- changes against restarts ----

def transitions(args):
    """The same program is changed while it runs, and stopped with a checkpoint and started anew."""
    gaps = {"add": [], "remove": [], "replace": [], "restart": []}
    progress = rounds.Progress(args.rounds)
    program = [jobs.BUILD / "examples/fashion_mnist/fashion_mnist", "--data", DATA, "--epochs", 1000]
    for turn in range(args.rounds):
        with jobs.folder() as path:
            flags = ["--checkpoint", path / "saved", "--every", "1000h", "--max", 4]
            with jobs.Running(2, flags, program, path / "first", f"change-{turn}") as job:
                job.steady(2)
                job.ask("resize", job.name, 3)
                job.steady(3)
                job.ask("resize", job.name, 2)
                job.steady(2)
                steps = jobs.Steps(path / "first")
                job.ask("resize", job.name, "--replace", steps.rows[-1]["worker"])
                views = len({row["view"] for row in steps.rows})
                job.wait_for("the replacement", lambda seen: len({row["view"] for row in seen.rows}) > views)
                job.steady(2, 20)
                job.stop()
            steps = jobs.verified(path / "first")
            views = sorted({row["view"] for row in steps.rows})
            for kind, before, after in zip(("add", "remove", "replace"), views, views[1:]):
                gaps[kind].append(jobs.idle(steps, before, after))
            with jobs.Running(2, ["--resume", path / "saved"], program, path / "second", f"again-{turn}") as job:
                job.steady(2, 20)
                job.stop()
            again = jobs.Steps(path / "second")
            ordinary = statistics.median(again.durations)
            gaps["restart"].append(again.rows[0]["t"] - steps.rows[-1]["t"] - ordinary)
        progress.line(", ".join(f"{kind} {1e3 * times[-1]:.0f} ms" for kind, times in gaps.items()))
    restart = statistics.median(gaps["restart"])
    rows = []
    for kind, times in gaps.items():
        middle, low, high = rounds.spread([1e3 * gap for gap in times])
        rows.append([kind, f"{middle:.0f} ms ({low:.0f} to {high:.0f})",
                     f"{1e3 * restart / middle:.0f}" if middle > 0 else "–"])
    return ("Changes against checkpoint-restart",
            "The demo's program on 2 workers: one more, one fewer, one in another's place; then it is stopped, which "
            "writes a checkpoint, and started again with --resume. Idle: how long those who stay are silent, beyond "
            f"ordinary steps; from the last step before to the first after a restart. Medians of {args.rounds} (lowest to "
            "highest); the last column is the restart's median over this one.",
            rounds.table(["change", "idle", "restart / this"], rows))


# ---- against fixed sizes ----

# name: contention, crosstalk, knee (0: none), milliseconds of a step alone
WORKLOADS = {"little contention": (0.05, 0.02, 0, 40), "crosstalk": (0.05, 0.04, 0, 60), "contention": (0.2, 0.01, 0, 40)}
KNEES = {"a sharp knee at 3": (0, 0, 3, 40), "a sharp knee at 5": (0, 0, 5, 40)}


def slowdown(shape, workers):
    contention, crosstalk, knee, _ = shape
    crowd = max(1, workers / knee) if knee else 1
    return crowd ** 2 * (1 + contention * (workers - 1) + crosstalk * workers * (workers - 1))


def workloads(args):
    """Completion and worker-seconds, against every fixed size."""
    sizes = range(1, args.most + 1)
    work = {}
    shapes = {**WORKLOADS, **KNEES}
    for name, shape in shapes.items():
        fastest = max(32 * size / slowdown(shape, size) for size in sizes) / shape[3] * 1e3
        program = synthetic("--contention", shape[0], "--crosstalk", shape[1], "--knee", shape[2], "--compute-ms", shape[3],
                            "--samples", int(args.seconds * fastest))
        for size in sizes:
            work[name, str(size)] = lambda size=size, program=program: jobs.run(size, [], program)
        work[name, "autoscale"] = lambda program=program: jobs.run(
            2, ["--max", args.most, "--policy", f"autoscale:max={args.most}"], program)
    seen = in_parallel(args, work)
    tables, points = [], {}
    for name in shapes:
        fixed = {size: seen[name, str(size)] for size in sizes}
        best = min(fixed, key=lambda size: fixed[size].seconds)
        rows = []
        for key in [*map(str, sizes), "autoscale"]:
            run = seen[name, key]
            points.setdefault(name, []).append((run.seconds, run.worker_seconds))
            rows.append([key + (" (fastest)" if key == str(best) else ""), f"{run.seconds:.1f} s",
                         f"{run.seconds / fixed[best].seconds:.3f}", f"{run.worker_seconds:.0f}",
                         f"{run.worker_seconds / fixed[best].worker_seconds:.3f}"])
        tables.append(f"## {name[0].upper() + name[1:]}\n\n" + rounds.table(
            ["workers", "time", "/ fastest", "worker-seconds", "/ fastest's"], rows))
    if args.svg:
        series = {}
        for name, all_points in ((name, points[name]) for name in WORKLOADS):
            ordered = sorted(all_points[:-1])
            series[name] = ([x for x, _ in ordered], [y for _, y in ordered], None, None)
            x, y = all_points[-1]
            series[name + ", autoscale"] = ([x * 0.99, x * 1.01], [y, y], None, None)
        args.svg.write_text(chart.chart("Time against work: fixed sizes and autoscale", "seconds", "worker-seconds",
                                        series))
    return ("Jobs that find their size, against fixed sizes",
            "`synthetic --sleep` with a fixed number of samples, from 2 workers, at most "
            f"{args.most}. A step of k workers takes 1 + a (k − 1) + b k (k − 1) times that of one, with the contention a "
            "and the crosstalk b of "
            + "; ".join(f"{name}: {shape[0]}, {shape[1]}" for name, shape in WORKLOADS.items())
            + ". Below a sharp knee speed is in proportion to the workers: there every size does the same work for a "
            "sample, nothing can be saved, and what is above 1 is the price of the search. Time: from the first worker's start to the last one's end; worker-seconds: the lifetimes of "
            f"all processes, whatever they do. {args.parallel} jobs at a time, in random order.", "\n\n".join(tables))


# ---- plans ----

def planned(args):
    """Records of short runs at other sizes, a plan, and the real thing."""
    words = ["--knee", 4, "--compute-ms", 60]
    with jobs.folder() as path:
        measured = path / "measured"
        rounds.run(jobs.command(1, ["--max", 8, "--policy", "schedule:1x40,2x40,3x40,4x40,5x40,6x40"],
                                synthetic(*words, "--steps", 240), measured), 600)
        samples = int(args.seconds / 0.06) * 32 * 4
        policy = "autoscale:max=6"
        cases = {"2": (2, []), "4": (4, []), "6": (6, []), policy: (2, ["--max", 6, "--policy", policy])}
        started = statistics.median(startup(measured))
        text = rounds.run([jobs.PLIANT, "plan", measured, "--sizes", "2,4,6", "--policy", policy, "--from", 2, "--max", 6,
                           "--samples", samples, "--start-seconds", f"{started:.3f}"], 60)
        seen = in_parallel(args, {key: lambda case=case: jobs.run(*case, synthetic(*words, "--samples", samples))
                                  for key, case in cases.items()})
    rows = []
    for key, run in seen.items():
        found = re.search(rf"^[* ] {re.escape(key)} +([\d.]+) (s|min|h) +([\d.e+-]+)", text, re.MULTILINE)
        if not found:
            raise rounds.Failure(f"no line for {key} in:\n{text}")
        time_planned = float(found[1]) * {"s": 1, "min": 60, "h": 3600}[found[2]]
        work_planned = float(found[3]) * 3600
        rows.append([key, f"{time_planned:.1f} s", f"{run.seconds:.1f} s", f"{time_planned / run.seconds:.3f}",
                     f"{work_planned:.0f}", f"{run.worker_seconds:.0f}", f"{work_planned / run.worker_seconds:.3f}"])
    rows.sort()
    return ("Plans against what came true",
            "`pliant plan` from the records of 240 steps at 1 to 6 workers; then the same job, for real. A worker's start "
            f"was measured as {1e3 * started:.0f} ms.",
            rounds.table(["workers", "planned", "real", "ratio", "worker-seconds planned", "real", "ratio"], rows))


def startup(folder):
    """Seconds from a worker's start to its first step, of those that came later."""
    steps = jobs.Steps(folder)
    began = {event["worker"]: event["t"] for event in steps.events if event["event"] == "started"}
    step = statistics.median(steps.durations)
    return [records[0]["t"] - began[worker] - step for worker, records in steps.by_worker.items() if worker != 0]


# ---- Slurm ----

def slurm(args):
    """To be run by tests/slurm/cluster.sh: an urgent job takes two of four nodes, and leaves."""
    rows = []
    progress = rounds.Progress(args.rounds)
    for turn in range(args.rounds):
        with jobs.folder() as path:
            flags = ["--min", 2, "--provider", "slurm:partition=spot", "--address", "127.0.0.1"]
            program = synthetic("--compute-ms", 50, "--steps", 1000000)
            with jobs.Running(4, flags, program, path / "records", f"night-{turn}") as job:
                job.steady(4)
                asked = time.time()
                urgent = rounds.run(["sbatch", "--parsable", "-p", "urgent", "-N", 2, "--exclusive",
                                     "--output", "/dev/null", "--wrap", "sleep 1000"], 30).strip()
                job.steady(2)
                time.sleep(3)
                freed = time.time()
                rounds.run(["scancel", urgent], 30)
                job.steady(4, 20)
                job.stop()
            steps = jobs.verified(path / "records")
        small = [row["t"] for row in steps.rows if row["size"] == 2 and row["t"] > asked]
        grown = next(row["t"] for row in steps.rows if row["size"] == 4 and row["t"] > freed)
        usual = statistics.median(steps.durations)
        worst = max(took for row, took in zip(steps.rows[1:], steps.durations) if asked < row["t"] < grown + 1)
        rows.append([str(turn + 1), f"{small[0] - asked:.2f} s", f"{grown - freed:.2f} s",
                     f"{1e3 * usual:.0f} ms", f"{1e3 * worst:.0f} ms", str(len(steps.rows))])
        progress.line(f"shrunk after {rows[-1][1]}, grown after {rows[-1][2]}")
    return ("Slurm takes two of four nodes and gives them back",
            "A real Slurm of four nodes on one machine (`tests/slurm/cluster.sh`), a partition with PreemptMode=CANCEL and a "
            "grace time of 5 s. A job of four workers, steps of 50 ms; an urgent job of two nodes is submitted, and "
            "cancelled 3 s after the job has shrunk. Shrunk: from the submission to the first step of two workers, with all "
            "that Slurm takes to decide. Grown: from the cancellation to the first step of four. `pliant verify` found no "
            "fault in any run.",
            rounds.table(["run", "shrunk after", "grown after", "a step", "the longest step meanwhile", "steps"], rows))


# ---- large plans ----

def large(args):
    """1,000 workers, a day of a spot trace."""
    with jobs.folder() as path:
        rounds.run(jobs.command(1, ["--max", 8, "--policy", "schedule:1x30,2x30,4x30,8x30"],
                                synthetic("--compute-ms", 20, "--contention", 0.001, "--steps", 120), path / "measured"), 600)
        chance, capacity = random.Random(7), 600
        with (path / "spot.csv").open("w") as file:
            for line in range(5000):
                file.write(f"{line * 17.28:.2f},{capacity},{0.2 + 0.2 * chance.random():.3f}\n")
                capacity = max(1, min(1000, capacity + chance.randint(-60, 60)))
        rows = []
        for words in (["--sizes", "1000"], ["--sizes", "250,500,1000"],
                      ["--sizes", "1000", "--policy", "autoscale:max=1000", "--policy", "autoscale:max=1000,by=goodput", "--from", 8,
                       "--max", 1000, "--noise-scale", 100000]):
            began = time.monotonic()
            text = rounds.run([jobs.PLIANT, "plan", path / "measured", "--trace", path / "spot.csv", "--samples",
                               6_600_000_000, *words], 600)
            took = time.monotonic() - began
            found = re.findall(r"^[* ] (?:\d+|autoscale\S*) +([\d.]+ (?:s|min|h))", text, re.MULTILINE)
            rows.append([" ".join(map(str, words)), ", ".join(found), f"{took:.2f} s"])
    return ("Large plans", "`pliant plan` with a trace of 5,000 lines over 24 h, up to 1,000 workers.",
            rounds.table(["flags", "planned time of each", "pliant plan took"], rows))


ROWS = {"slurm": slurm, "large": large, "knees": knees, "stragglers": stragglers, "transitions": transitions, "workloads": workloads, "planned": planned}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter,
                                     epilog="Examples:\n  python3 bench/autoscale/autoscale.py knees --rounds 2\n"
                                     "  python3 bench/autoscale/autoscale.py workloads --parallel 8 --out docs/results/workloads.md")
    parser.add_argument("what", choices=ROWS)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--parallel", type=int, default=1, help="jobs at a time")
    parser.add_argument("--knees", type=rounds.listed(int), default=[2, 3, 5, 6])
    parser.add_argument("--compute-ms", type=int, default=40)
    parser.add_argument("--steps", type=int, default=2000, help="of a search for a knee")
    parser.add_argument("--most", type=int, default=8, help="workers")
    parser.add_argument("--seconds", type=float, default=60, help="of a job at its knee")
    parser.add_argument("--svg", type=pathlib.Path, help="draw workloads")
    parser.add_argument("--out", type=pathlib.Path, help="write the result as Markdown")
    parser.add_argument("--json", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()

    def measure():
        title, text, table = ROWS[args.what](args)
        return "\n\n".join([rounds.report_head(title, {}), text, table]) + "\n", []
    return rounds.drive(args, measure)


if __name__ == "__main__":
    sys.exit(main())
