#!/usr/bin/python3
"""What the coming and going of workers costs those who stay, beside torchrun's restart, on this machine.
See README.md."""

import argparse
import dataclasses
import json
import math
import pathlib
import random
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import events as doings  # noqa: E402  (found through the line above)
import gaps  # noqa: E402
import peer  # noqa: E402
import storm  # noqa: E402
from job import Job  # noqa: E402
from processes import rounds  # noqa: E402
from results import (ENDLESS, Bar, Results, add_job_flags,  # noqa: E402
                     do_all, evaluate, events_table, range_text, workplace)

CONTENDERS = ["pliant", "faults", "torchrun"]
FIRST_FAULT = 60  # step

FAULTS = {f"kill {point}": f"kill -9, {point}" for point in doings.FAULT_POINTS}
ROWS = {"kill": "kill -9, any moment", **FAULTS, "leave": "leave with notice", "join": "join",
        "replacement": "join after a kill", "coordinator": "kill -9 of the coordinator",
        "agent": "kill -9 of the agent", "nothing": "nothing", "torchrun": "torchrun: kill -9, any moment"}
BARS = {"kill": Bar(100), **{kind: Bar(100) for kind in FAULTS}, "leave": Bar(10), "join": Bar(50),
        "replacement": Bar(50), "coordinator": Bar(50, every=True), "agent": Bar(50, every=True)}
SHORTER = 15  # times, than torchrun's silence


@dataclasses.dataclass
class Place:
    """Where in the sweep a run is."""
    workers: int
    turn: int

    def text(self):
        return f"{self.workers} workers, round {self.turn + 1}"


# ---- one run ----

def noting(args, place):
    """What is done with each event's gap."""
    def note(event, gap):
        if args.json:
            print(json.dumps({"workers": place.workers, "round": place.turn + 1, **dataclasses.asdict(event),
                              **dataclasses.asdict(gap)}), flush=True)
    return note


def run_pliant(args, place, rng, folder, results):
    with Job(args, folder, place.workers, ENDLESS, args.seed) as job:
        seen = do_all(job, args.kinds, doings.ACTIONS, args.events, rng, results)
        job.stop()
        job.verify()
    return evaluate(seen, job.records.steps, place.workers, place.turn, results, noting(args, place))


def steps_between_faults(results):
    """Enough for the next worker to be there: half as much again as a newcomer took so far."""
    if not results.own_s or not results.steps_ms.get("pliant"):
        return 200
    step_ms = min(results.steps_ms["pliant"].values())
    return 50 + math.ceil(1.5 * max(results.own_s) * 1e3 / step_ms)


def run_faults(args, place, rng, folder, results):
    """Workers that kill themselves where it hurts most, as the environment tells them."""
    every = steps_between_faults(results)
    orders = doings.fault_orders(args.faults, place.turn * args.faults, FIRST_FAULT, every)
    last = orders[-1][1]
    with Job(args, folder, place.workers, ENDLESS, args.seed, {"PLIANT_FAULT": doings.fault_text(orders)}) as job:
        job.wait_steady(place.workers)
        for _, step, point in orders:
            job.wait(f"step {step} and its {point}", args.timeout,
                     lambda step=step: job.records.newest().step >= min(step + every // 2, last + 20))
        job.stop()
        job.verify()
    seen, unclear = [], []
    for worker, step, point in orders:
        try:
            seen.append(gaps.fault_event(f"kill {point}", worker, step, job.records.steps))
        except gaps.Unclear as why:
            unclear.append(f"kill {point}: {why}")
    return unclear + evaluate(seen, job.records.steps, place.workers, place.turn, results, noting(args, place))


def run_torchrun(args, place, rng, folder, results):
    folder.mkdir()
    seen, step_s = peer.measure(args, place.workers, args.events, rng, folder)
    results.steps_ms.setdefault("torchrun", {})[place.turn] = step_s * 1e3
    for gap in seen:
        results.add("torchrun", place.turn, gap)
        noting(args, place)(gaps.Event("torchrun", 0.0, []), gap)
    return []


RUNS = {"pliant": run_pliant, "faults": run_faults, "torchrun": run_torchrun}


def sweep(args, rng, folder):
    """{workers: Results} and the failures."""
    found, failures = {}, []
    progress = rounds.Progress(len(args.workers) * args.rounds * len(args.contenders))
    for workers in args.workers:
        results = found[workers] = Results()
        for turn in range(args.rounds):
            place = Place(workers, turn)
            for contender in rounds.in_turn(args.contenders, turn):
                try:
                    wrong = RUNS[contender](args, place, rng, folder / f"{contender}-{workers}-{turn}", results)
                except (rounds.Failure, gaps.Unclear) as failure:
                    wrong = [str(failure)]
                failures += [(contender, place.text(), why) for why in wrong]
                progress.line(f"{place.text()}, {contender}: {'FAILED, ' + wrong[0] if wrong else 'done'}")
    return found, failures


# ---- what came out ----

def made_again_s(results):
    """torchrun's silences, and the time for the steps lost since the checkpoint: then it is where it was."""
    return [(gap.silence_ms + gap.lost * results.steps_ms["torchrun"][turn]) / 1e3
            for turn, seen in results.gaps["torchrun"].items() for gap in seen]


def more_table(results):
    rows = [[f"step, ms, {system}", range_text(list(of_rounds.values()))]
            for system, of_rounds in results.steps_ms.items()]
    if results.own_s:
        rows.append(["a newcomer's own time to its first step, s", range_text(results.own_s)])
    ratios = rounds.ratios(results.silences("torchrun"), results.silences("kill"))
    if ratios:
        met = "yes" if rounds.spread(ratios)[0] >= SHORTER else "NO"
        rows.append([f"silence after kill -9, torchrun / pliant (bar: ≥ {SHORTER})",
                     f"{rounds.ratio_text(ratios)}, met: {met}"])
        rows.append(["torchrun: until the lost steps are made again, s", range_text(made_again_s(results))])
    if results.again:
        rows.append(["events done again, as they fell on the end of an epoch", str(results.again)])
    return rounds.table(["also", "median (lowest … highest)"], rows) if rows else ""


def versions(args):
    return {"Pliant": rounds.first_line([args.pliant, "--version"]), "PyTorch": rounds.package("python3-torch"),
            "Gloo": rounds.package("libgloo0")}


def report(found, failures, args):
    how = (f"The demo's network, batch {args.batch} per worker, one thread each, {args.rounds} rounds in turn. A gap "
           "is the time beyond ordinary steps between the last step before the event and the first after it, of the "
           "survivor that was silent longest: median (lowest … highest). For torchrun, which starts everybody anew, "
           f"it is that of the first worker to make a step again, from a checkpoint every {args.checkpoint_every} "
           "steps. Every run of Pliant has passed `pliant verify`. How it is measured: `bench/elastic/README.md`.")
    parts = [rounds.report_head("Workers that come and go", versions(args)), how]
    for workers, results in found.items():
        parts += [f"## {workers} workers", events_table(results, ROWS, BARS), more_table(results)]
    return "\n\n".join(part for part in parts + [rounds.failures_text(failures)] if part) + "\n"


def storm_report(rows, failures, args):
    how = (f"{args.storm} random events in one run of {args.epochs} epochs that began with {args.storm_workers} "
           f"workers, batch {args.batch} per worker, beside undisturbed runs. Every run has finished its epochs and "
           "passed `pliant verify`, or is listed as a failure. How it is measured: `bench/elastic/README.md`.")
    parts = [rounds.report_head("A storm of events", versions(args)), how, storm.text(rows),
             rounds.failures_text(failures)]
    return "\n\n".join(part for part in parts if part) + "\n"


# ---- command line ----

def parse():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workers", type=rounds.listed(int), help="default 2,3,4")
    parser.add_argument("--contenders", type=rounds.listed(str), default=CONTENDERS,
                        help=f"default {','.join(CONTENDERS)}")
    parser.add_argument("--kinds", type=rounds.listed(str), default=list(doings.ACTIONS),
                        help=f"of events of the contender pliant; default {','.join(doings.ACTIONS)}")
    parser.add_argument("--rounds", type=int, help="default 3")
    parser.add_argument("--events", type=int, help="of each kind and round; default 4")
    parser.add_argument("--faults", type=int, help="kills at fault points per round, the points in turn; default 12")
    parser.add_argument("--storm", type=int, metavar="EVENTS", help="so many random events in one run, instead")
    parser.add_argument("--storm-workers", type=int, default=3, help="at the storm's start")
    parser.add_argument("--epochs", type=int, help="of the storm's runs; default 15")
    parser.add_argument("--limit", type=int, help="samples of the storm's runs; default all")
    parser.add_argument("--checkpoint-every", type=int, help="steps, under torchrun; default 100")
    parser.add_argument("--quick", action="store_true", help="two workers, few events: does everything run?")
    parser.add_argument("--selftest", action="store_true", help="try the analysis on made-up records, and end")
    add_job_flags(parser)
    parser.add_argument("--timeout", type=float, default=3600, help="seconds for one run to its end")
    args = parser.parse_args()
    unknown = (set(args.contenders) - set(CONTENDERS)) | (set(args.kinds) - doings.ACTIONS.keys())
    if unknown:
        parser.error(f"unknown: {', '.join(sorted(unknown))}")
    fill_in(args)
    if min(args.workers) < 2:
        parser.error("nobody survives a kill of the only worker: --workers from 2 on")
    return args


def fill_in(args):
    """Defaults that depend on --quick."""
    usual = {"workers": [2, 3, 4], "rounds": 3, "events": 4, "faults": 12, "epochs": 15, "limit": 0,
             "checkpoint_every": 100}
    quick = {"workers": [2], "rounds": 1, "events": 1, "faults": 3, "epochs": 3, "limit": 20000, "checkpoint_every": 30}
    for name, value in (quick if args.quick else usual).items():
        if getattr(args, name) is None:
            setattr(args, name, value)


def measure(args, folder):
    """The report, and whether anything failed."""
    rng = random.Random(args.seed)
    if args.storm:
        rows, failures = storm.run_all(args, rng, folder, lambda line: print(line, file=sys.stderr, flush=True))
        if args.json:
            print("\n".join(json.dumps({"run": name, **row}) for name, row in rows))
        return storm_report(rows, failures, args), failures
    found, failures = sweep(args, rng, folder)
    return report(found, failures, args), failures


def main():
    args = parse()
    if args.selftest:
        import gaps_test
        return unittest.main(module=gaps_test, argv=[sys.argv[0]])

    def everything():
        with workplace(args) as folder:
            return measure(args, pathlib.Path(folder).resolve())
    return rounds.drive(args, everything)


if __name__ == "__main__":
    sys.exit(main())
