#!/usr/bin/python3
"""What the loss of workers and of whole hosts costs those who stay. See README.md."""

import argparse
import dataclasses
import json
import os
import pathlib
import random
import signal
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent), str(HERE.parent / "elastic")]
import events as doings  # noqa: E402  (found through the line above)
import gaps  # noqa: E402
import rounds  # noqa: E402
import space  # noqa: E402
from hosts_job import HostsJob  # noqa: E402
from results import (ENDLESS, Bar, Results, add_job_flags,  # noqa: E402
                     do_all, evaluate, events_table, range_text, workplace)

ROWS = {"kill": "kill -9 of a worker", "host": "a host is lost: cut off and killed", "cut": "a host is cut off",
        "leave": "leave with notice", "join": "join", "replacement": "join after a kill", "nothing": "nothing"}
BARS = {"kill": Bar(150), "host": Bar(1000), "cut": Bar(1000), "leave": Bar(20), "join": Bar(60),
        "replacement": Bar(60)}


# ---- what is done ----

def can_be_lost(places):
    """Hosts without which the rest goes on: more than half of the workers, or half with the lowest id."""
    everybody = [worker for workers in places.values() for worker in workers]
    return [host for host, workers in places.items()
            if (len(everybody) - len(workers), min(everybody) not in workers) > (len(everybody) / 2, False)]


def end_processes(pids):
    for pid in pids:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass  # it was faster


def lose_host(job, rng, kind):
    """Cuts a host's cable and kills all of its processes: at once, or, if it is only cut off, once the others have gone
    on. Nothing that the dead send gets through. Then the cable is mended, and the job starts others there."""
    members = doings.moment(job, rng, job.workers)
    places = job.places(members)
    host = rng.choice(can_be_lost(places))
    victims, pids = places[host], space.dwellers(host)
    view = job.records.members()[victims[0]][-1].view
    now = time.time()
    job.hosts.cut(host)
    if kind == "host":
        end_processes(pids)
    survivors = [worker for worker in members if worker not in victims]
    job.wait_steps_without(f"the loss of workers {victims}", survivors, view)
    space.kill_dwellers(host)
    mended = time.time()
    job.hosts.mend(host)
    job.wait_steady(job.workers)
    job.whole_s.append(time.time() - mended)
    return [gaps.Event(kind, now, members, victims=victims)]


ACTIONS = {"kill": doings.kill, "host": lambda job, rng: lose_host(job, rng, "host"),
           "cut": lambda job, rng: lose_host(job, rng, "cut"), "leave": doings.leave_and_join,
           "nothing": doings.nothing}


def one_run(args, hosts, turn, rng, folder, results):
    """Events of all kinds in random order; why some of them count for nothing, in a list."""
    with HostsJob(args, hosts, args.slots, folder, ENDLESS, args.seed) as job:
        job.whole_s = results.whole_s
        seen = do_all(job, args.kinds, ACTIONS, args.events, rng, results)
        job.stop()
        job.verify()

    def note(event, gap):
        if args.json:
            print(json.dumps({"round": turn + 1, **dataclasses.asdict(event), **dataclasses.asdict(gap)}), flush=True)
    return evaluate(seen, job.records.steps, job.workers, turn, results, note)


def measure(args, folder):
    rng, results, failures = random.Random(args.seed), Results(), []
    results.whole_s = []  # from the mending of a lost host's cable until everybody is in step again
    progress = rounds.Progress(args.rounds)
    with space.Hosts(len(args.slots), args.mbit) as hosts:
        for turn in range(args.rounds):
            try:
                wrong = one_run(args, hosts, turn, rng, folder / f"run-{turn}", results)
            except (rounds.Failure, gaps.Unclear) as failure:
                wrong = [str(failure)]
            failures += [("pliant", f"round {turn + 1}", why) for why in wrong]
            progress.line(f"round {turn + 1}: {'FAILED, ' + wrong[0] if wrong else 'done'}")
    return results, failures


# ---- what came out ----

def more_table(results):
    rows = [["step, ms", range_text(list(results.steps_ms.get("pliant", {}).values()))]]
    if results.own_s:
        rows.append(["a newcomer's own time to its first step, s", range_text(results.own_s)])
    if results.whole_s:
        rows.append(["from a mended cable to ten steps of everybody, s", range_text(results.whole_s)])
    if results.again:
        rows.append(["events done again, as they fell on the end of an epoch", str(results.again)])
    return rounds.table(["also", "median (lowest … highest)"], rows)


def report(results, failures, args):
    speed = f"{args.mbit} Mbit/s each" if args.mbit else "as fast as the machine is"
    how = (f"The demo's network on {len(args.slots)} hosts with {', '.join(map(str, args.slots))} workers, batch "
           f"{args.batch} per worker, one thread each, {args.rounds} runs. Hosts are network namespaces on this "
           f"machine, their cables {speed}. A gap is the time beyond ordinary steps between the last step before the "
           "event and the first after it, of the survivor that was silent longest: median (lowest … highest). Every "
           "run has passed `pliant verify`, or is listed as a failure. How it is measured: `bench/hosts/README.md`.")
    head = rounds.report_head("Losses between hosts", {"Pliant": rounds.first_line([args.pliant, "--version"])})
    parts = [head, how, events_table(results, ROWS, BARS), more_table(results), rounds.failures_text(failures)]
    return "\n\n".join(part for part in parts if part) + "\n"


def parse():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--slots", type=rounds.listed(int), default=[1, 1, 2], help="workers of each host")
    parser.add_argument("--mbit", type=int, default=0, help="of each cable; 0: as fast as the machine is")
    parser.add_argument("--kinds", type=rounds.listed(str), default=list(ACTIONS),
                        help=f"of events; default {','.join(ACTIONS)}")
    parser.add_argument("--rounds", type=int, help="runs; default 2")
    parser.add_argument("--events", type=int, help="of each kind and run; default 5")
    parser.add_argument("--quick", action="store_true", help="one run, one event of each kind: does everything run?")
    add_job_flags(parser)
    args = parser.parse_args()
    unknown = set(args.kinds) - ACTIONS.keys()
    if unknown:
        parser.error(f"unknown: {', '.join(sorted(unknown))}")
    if len(args.slots) < 2 or 2 * max(args.slots) > sum(args.slots):
        parser.error("no host may have more than half of the slots")
    args.rounds = args.rounds or (1 if args.quick else 2)
    args.events = args.events or (1 if args.quick else 5)
    return args


def main():
    args = parse()

    def everything():
        with workplace(args) as folder:
            results, failures = measure(args, pathlib.Path(folder).resolve())
        return report(results, failures, args), failures
    return rounds.drive(args, everything)


if __name__ == "__main__":
    sys.exit(main())
