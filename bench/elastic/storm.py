"""Many events in one run that must reach its end: what is left of the training afterwards?"""

import os
import re
import signal
import time

from job import REACT, Job
from processes import rounds

LEAST, MOST = 2, 4  # workers wanted at any time
SEEDS = [42, 43, 44]  # the first is the storm's; the others show what a seed alone does to the result
NO_PROGRESS = 300  # seconds; an event can cost a newcomer's start on a busy machine, but not this
LAST_PART = 0.95  # of the run in which events happen: the last newcomer shall still do something


def choices(seen, struck):
    """What can be done now. Somebody who is neither leaving nor about to die must always remain."""
    sound = {worker["id"]: worker["pid"] for worker in seen["workers"]
             if worker["alive"] and worker["id"] not in struck}
    members = [worker for worker in seen["view"]["members"] if worker in sound]
    possible = {}
    if seen["wanted"] < MOST:
        possible["join"] = [None]
    if len(members) > 1:
        # A newcomer that has not been taken in yet may die too.
        possible["kill"] = [worker for worker in sound if worker not in members] + members
        if seen["wanted"] > LEAST:
            possible["leave"] = members
    return possible, sound


def act(job, rng, struck):
    """One random event; its kind, or None if there was nothing to be done."""
    seen = job.status()
    possible, sound = choices(seen, struck)
    if not possible:
        return None
    kind = rng.choice(sorted(possible))
    victim = rng.choice(possible[kind])
    if kind == "join":
        job.call("resize", job.name, seen["wanted"] + 1)
        return kind
    struck.add(victim)
    try:
        os.kill(sound[victim], signal.SIGKILL if kind == "kill" else signal.SIGTERM)
    except ProcessLookupError:
        return None  # it was faster
    return kind


def rage(job, count, epochs, rng, say):
    """So many events, spread over the run by its progress and not by the clock."""
    done, struck = {"join": 0, "leave": 0, "kill": 0}, set()
    for at in range(count):
        due = (at + rng.random()) / count * LAST_PART * epochs
        job.wait(f"event {at + 1} of the storm", NO_PROGRESS, lambda due=due: passed(job) >= due)
        end = time.monotonic() + REACT
        while (kind := act(job, rng, struck)) is None:
            if time.monotonic() > end:
                raise rounds.Failure("too few workers for the next event")
            time.sleep(0.2)
        done[kind] += 1
        say(f"storm, event {at + 1} of {count}: {kind} in epoch {passed(job):.2f} of {epochs}")
    return done


def passed(job):
    newest = job.records.newest()
    return newest.passed if newest else -1.0


def accuracy(folder, epochs):
    """Percent after the last epoch, as the leader of that time has printed it."""
    for path in sorted(folder.glob("output/*.out")):
        found = re.search(rf"^epoch {epochs} .*test accuracy ([0-9.]+) %", path.read_text(errors="replace"), re.M)
        if found:
            return float(found[1])
    raise rounds.Failure("nobody printed the last epoch's accuracy")


def train(args, folder, seed, events, rng, say):
    """One run to its end, with or without a storm: a row of the table."""
    began = time.monotonic()
    program = ["--limit", args.limit] if args.limit else []
    with Job(args, folder, args.storm_workers, args.epochs, seed, program=program) as job:
        done = rage(job, events, args.epochs, rng, say) if events else {}
        job.wait_end(args.timeout)
        seen = job.verify()
    if seen["epochs"] != args.epochs:
        raise rounds.Failure(f"{seen['epochs']} epochs were finished, not {args.epochs}")
    return {"seed": seed, "events": done, "accuracy": accuracy(folder, args.epochs), "verify": seen,
            "seconds": time.monotonic() - began}


def run_all(args, rng, folder, say):
    """Rows of the storm and of the undisturbed runs, and the failures."""
    rows, failures = [], []
    plan = [("storm", SEEDS[0], args.storm)] + [("undisturbed", seed, 0) for seed in SEEDS]
    for name, seed, events in plan:
        try:
            row = train(args, folder / f"{name}-{seed}", seed, events, rng, say)
            rows.append((name, row))
            say(f"{name}, seed {seed}: {row['accuracy']:.2f} % after {row['seconds']:.0f} s")
        except rounds.Failure as failure:
            failures.append((name, f"seed {seed}", str(failure)))
            say(f"{name}, seed {seed}: FAILED, {failure}")
    return rows, failures


def text(rows):
    head = ["run", "seed", "joins", "leaves", "kills", "test accuracy, %", "steps", "views", "workers", "seconds"]
    table = [[name, str(row["seed"]), *(str(row["events"].get(kind, "–")) for kind in ("join", "leave", "kill")),
              f"{row['accuracy']:.2f}", *(str(row["verify"][field]) for field in ("steps", "views", "workers")),
              f"{row['seconds']:.0f}"] for name, row in rows]
    parts = [rounds.table(head, table)] if rows else []
    calm = [row["accuracy"] for name, row in rows if name == "undisturbed"]
    if calm and rows[0][0] == "storm":
        parts.append(f"Seeds alone: {min(calm):.2f} % to {max(calm):.2f} %. The storm: "
                     f"{rows[0][1]['accuracy'] - rounds.spread(calm)[0]:+.2f} points from their median.")
    return "\n\n".join(parts)
