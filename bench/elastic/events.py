"""What is done to a running job. Each returns the events that it caused, for the analysis of the records."""

import os
import signal
import time

from gaps import Event
from job import REACT, START
from processes import rounds, started_at, wait_for

SPAN = 2.0  # seconds to look for a late step after an event that should not cause one
FAULT_POINTS = ["between_buckets", "mid_slice", "after_apply"]


def moment(job, rng, workers):
    """The members at a random moment of a steady job, away from the end of an epoch."""
    members = job.wait_steady(workers)
    job.wait_mid_epoch()
    time.sleep(rng.uniform(0, 0.3))
    return members


def strike(job, rng, kind, sent, members):
    """A signal to one of the members; returns when the others have gone on without it."""
    victim = rng.choice(members)
    pid, view = job.pids()[victim], job.records.members()[victim][-1].view
    now = time.time()
    os.kill(pid, sent)
    job.wait_steps_without(f"worker {victim}", [worker for worker in members if worker != victim], view)
    return Event(kind, now, members, victims=[victim])


def arrival(job, kind, asked_at, members, before):
    """Waits for one worker more than `members`, of whom there was no record `before`."""
    everybody = job.wait_steady(len(members) + 1)
    found = [worker for worker in everybody if worker not in before]
    if len(found) != 1:
        raise rounds.Failure(f"one newcomer was expected, not {len(found)}")
    first = job.records.steps[found[0]][0].t
    own_s = first - started_at(job.pids()[found[0]])
    return Event(kind, asked_at, members, newcomer=found[0], own_s=own_s)


def kill(job, rng):
    """SIGKILL at a random moment. Pliant starts another worker by itself, which joins: an event of its own."""
    members = moment(job, rng, job.workers)
    before = set(job.records.steps)
    killed = strike(job, rng, "kill", signal.SIGKILL, members)
    now = time.time()
    rest = [worker for worker in members if worker not in killed.victims]
    return [killed, arrival(job, "replacement", now, rest, before)]


def leave_and_join(job, rng):
    """SIGTERM lets a worker leave, and one worker less is wanted; then somebody new is asked for."""
    left = strike(job, rng, "leave", signal.SIGTERM, moment(job, rng, job.workers))
    job.workers -= 1
    try:
        members = moment(job, rng, job.workers)
    finally:
        job.workers += 1
    now, before = time.time(), set(job.records.steps)
    job.call("resize", job.name, job.workers)
    return [left, arrival(job, "join", now, members, before)]


def watch(job, kind, now, members, until):
    """An event that should leave every step as it is: looks until `until` holds, and a while longer."""
    wait_for(f"what follows the {kind}", REACT, until)
    job.wait("steps afterwards", START, lambda: job.records.newest().t > now + SPAN)
    return [Event(kind, now, members, end=job.records.newest().t)]


def kill_coordinator(job, rng):
    """The agent starts another."""
    members = moment(job, rng, job.workers)
    pid = job.status()["coordinator"]["pid"]
    now = time.time()
    os.kill(pid, signal.SIGKILL)
    return watch(job, "coordinator", now, members, lambda: is_another(job.status()["coordinator"], pid))


def kill_agent(job, rng):
    """Nobody starts another: `pliant run --attach` does, after a while without."""
    members = moment(job, rng, job.workers)
    pid = job.status()["agent"]["pid"]
    now = time.time()
    os.kill(pid, signal.SIGKILL)
    time.sleep(SPAN / 2)
    job.attach()
    return watch(job, "agent", now, members, lambda: is_another(job.status()["agent"], pid))


def nothing(job, rng):
    """For comparison: the worst step of such a span when nothing is done."""
    members = moment(job, rng, job.workers)
    return watch(job, "nothing", time.time(), members, lambda: True)


def is_another(process, pid):
    return process["alive"] and process["pid"] != pid


ACTIONS = {"kill": kill, "leave": leave_and_join, "coordinator": kill_coordinator, "agent": kill_agent,
           "nothing": nothing}


def fault_orders(count, turn, first, every):
    """(worker, step, point): each time the oldest worker, as ids are given in order and never twice."""
    points = [FAULT_POINTS[(turn + at) % len(FAULT_POINTS)] for at in range(count)]
    return [(at, first + at * every, point) for at, point in enumerate(points)]


def fault_text(orders):
    return ";".join(f"{worker}@{step}:{point}" for worker, step, point in orders)
