#!/usr/bin/python3
"""What a change of view costs those who stay, by the size of the model: kill -9, the join of the replacement, and the
join of one more. The model is examples/synthetic: gradients in registered memory, and time. See README.md."""

import collections
import json
import os
import pathlib
import random
import signal
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import events as doings  # noqa: E402  (found through the line above)
import flags  # noqa: E402
import gaps  # noqa: E402
from job import Job  # noqa: E402
from processes import rounds  # noqa: E402

BARS = {"kill": {64: 60, 512: 150, 1024: 250}, "join": {64: 80, 512: 250, 1024: 450}}  # ms, by MiB
BARS["replacement"] = BARS["join"]
NAMES = {"kill": "kill -9", "replacement": "join after the kill", "join": "join of one more"}
TAIL = 10  # steps after a change, in which the work that it left behind is done


# ---- one job ----

def grow(job, rng):
    """One worker more than the job has had, and then one leaves again."""
    members = doings.moment(job, rng, job.workers)
    before, now = set(job.records.steps), time.time()
    job.call("resize", job.name, job.workers + 1)
    joined = doings.arrival(job, "join", now, members, before)
    doings.strike(job, rng, "leave", signal.SIGTERM, job.wait_steady(job.workers + 1))
    job.wait_steady(job.workers)
    return [joined]


def cost_of(event, records, medians):
    """Milliseconds: an ordinary step, the time from step to step across the change, what of it is beyond ordinary
    steps, and the same of the steps that follow; each of the survivor for whom it was longest."""
    windows, after = [], []
    for worker in event.members:
        if worker not in event.victims:
            own = records[worker]
            windows.append(gaps.window_of(own, event, records))
            at = own.index(windows[-1][-1])
            after.append(gaps.excess(own[at:at + TAIL + 1], medians))
    longest = max(windows, key=lambda window: gaps.excess(window, medians))
    beyond, usual = gaps.excess(longest, medians), gaps.step_time(medians, longest[-1].size)
    return {"usual": usual * 1e3, "worst": (usual + beyond) * 1e3, "beyond": beyond * 1e3, "tail": max(after) * 1e3}


def run_job(args, build, size, turn, folder):
    """{event: its cost}."""
    rng = random.Random(args.seed + turn)
    pliant, program = build
    args.pliant = pliant
    command = [program, "--parameters", size << 20, "--compute-ms", args.compute_ms, "--steps", 1 << 20]
    if args.state:
        command += ["--state", args.state << 20]
    if not args.busy:
        command.append("--sleep")
    with Job(args, folder, args.workers, 0, args.seed, command=command) as job:
        seen = [event for act in [doings.kill, grow][:2 if args.grow else 1] for event in act(job, rng)]
        used = cpu_of(job)
        job.stop()
        job.verify()
    medians = gaps.ordinary(job.records.steps)
    return {event.kind: {**cost_of(event, job.records.steps, medians), "cpu": used} for event in seen}


def cpu_of(job):
    """Seconds of user and system time per worker that lives, and how often it has waited for a page."""
    ticks = os.sysconf("SC_CLK_TCK")
    times = {}
    for worker, pid in job.pids().items():
        fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        times[worker] = [int(fields[11]) / ticks, int(fields[12]) / ticks, int(fields[7])]
    return times


# ---- many ----

def sweep(args, folder):
    found, failures = collections.defaultdict(list), []
    total = args.rounds * len(args.sizes) * len(args.builds)
    progress = rounds.Progress(total)
    for turn in range(args.rounds):
        for size in args.sizes:
            for name in rounds.in_turn(list(args.builds), turn):
                where = f"{name}, {size} MiB, round {turn + 1}"
                try:
                    seen = run_job(args, args.builds[name], size, turn, flags.folder_in(folder))
                except (rounds.Failure, gaps.Unclear) as why:
                    failures.append((name, where, str(why)))
                    progress.line(f"{where}: {why}")
                    continue
                for kind, values in seen.items():
                    found[name, size, kind].append(values)
                    if args.json:
                        print(json.dumps({"build": name, "mib": size, "round": turn + 1, "event": kind, **values}),
                              flush=True)
                progress.line(where + ": " + ", ".join(f"{kind} {values['beyond']:.0f} ms"
                                                       for kind, values in seen.items()))
    return found, failures


def cell(values):
    middle, low, high = rounds.spread(values)
    return f"{middle:.0f} ({low:.0f} … {high:.0f})"


def report(args, found, failures):
    state = f"{args.state} MiB of shared state, " if args.state else ""
    how = (f"{args.workers} workers on one host, examples/synthetic, {state}--compute-ms {args.compute_ms:g}, "
           f"{'working' if args.busy else 'sleeping'}; {args.rounds} rounds, the builds in turn; milliseconds, median "
           "(lowest … highest). *beyond*: between the last step before the event and the first in the next view, less "
           "an ordinary step for each, of the survivor that was silent longest. *after*: the same of the "
           f"{TAIL} steps that follow. Every job has passed `pliant verify`.")
    rows = []
    for size in args.sizes:
        for kind in NAMES:
            for name in args.builds:
                seen = found.get((name, size, kind))
                if not seen:
                    continue
                bar = BARS[kind].get(size)
                rows.append([f"{size} MiB", NAMES[kind], name, *(cell([one[what] for one in seen]) for what in
                                                                ("usual", "worst", "beyond", "tail")),
                             f"{bar}" if bar else "–", str(len(seen))])
    head = ["parameters", "event", "build", "usual step", "worst step", "beyond", "after", "bar", "rounds"]
    parts = [rounds.report_head("What a change of view costs, by the size of the model",
                                {name: " ".join(build) for name, build in args.builds.items()}),
             how, rounds.table(head, rows), rounds.failures_text(failures)]
    return "\n\n".join(part for part in parts if part) + "\n"


# ---- command line ----

def parse():
    parser = flags.parser_of(__doc__)
    flags.add_against(parser)
    parser.add_argument("--sizes", type=rounds.listed(int), default=[64, 512, 1024], help="MiB of parameters")
    parser.add_argument("--state", type=int, default=0, metavar="MIB", help="of shared state that newcomers are given")
    parser.add_argument("--workers", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--compute-ms", type=float, default=20, help="of a step's forward and backward pass")
    parser.add_argument("--busy", action="store_true", help="spend that working instead of sleeping")
    parser.add_argument("--no-grow", dest="grow", action="store_false", help="leave out the join of one more")
    parser.add_argument("--json", action="store_true", help="print a line per event instead of the report")
    args = parser.parse_args()
    args.builds = flags.builds_of(args)
    if args.workers < 2:
        parser.error("nobody survives a kill of the only worker: --workers from 2 on")
    return args


def main():
    def everything(args, place):
        found, failures = sweep(args, place)
        return report(args, found, failures), failures
    return flags.drive(parse(), "cost", everything)


if __name__ == "__main__":
    sys.exit(main())
