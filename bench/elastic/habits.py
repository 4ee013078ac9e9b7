#!/usr/bin/python3
"""What users' habits do to a job one of whose workers is killed with SIGKILL meanwhile: programs that throw, exit, fork,
loop twice, evaluate on one rank, keep a thousand reductions in flight, hold large regions on several hosts, or run in a
memory cgroup that is full of cache. Each must be done with all of its samples and exit code 0, say in a line what was
wrong if something was, and pass `pliant verify`. See README.md."""

import contextlib
import os
import pathlib
import random
import signal
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent), str(HERE.parent / "hosts")]
import flags  # noqa: E402  (found through the line above)
import space  # noqa: E402
from job import Job  # noqa: E402
from processes import last_line, rounds  # noqa: E402

AT = 100  # the step in which a habit shows


# ---- where a job runs ----

@contextlib.contextmanager
def here():
    yield {}


@contextlib.contextmanager
def two_hosts():
    with space.Hosts(2) as hosts:
        yield {"via": ["ip", "netns", "exec", hosts.switch],
               "options": ["-H", ",".join(f"{name}:1" for name in hosts.names), "--via", "ip netns exec {host}",
                           "--address", hosts.switch_address, "--interface", "eth0"]}


@contextlib.contextmanager
def cgroup_full_of_cache(mib=1024):
    """A memory cgroup with a limit that the cache of one file has reached."""
    v1 = pathlib.Path("/sys/fs/cgroup/memory")
    group = (v1 if v1.exists() else pathlib.Path("/sys/fs/cgroup")) / f"pliant-habits-{os.getpid()}"
    with tempfile.NamedTemporaryFile(prefix="pliant-cache-") as file:
        try:
            group.mkdir()
            (group / ("memory.limit_in_bytes" if v1.exists() else "memory.max")).write_text(str(mib << 20))
            enter = ["sh", "-c", f"echo $$ >{group}/cgroup.procs && exec \"$@\"", "sh"]
            rounds.run([*enter, "dd", "if=/dev/zero", f"of={file.name}", "bs=1M", f"count={mib + mib // 2}"], 120)
        except OSError as why:
            raise rounds.Failure(f"no memory cgroup: {why}") from None
        try:
            yield {"via": enter}
        finally:
            with contextlib.suppress(OSError):
                group.rmdir()


# ---- what is done to it ----

def reach(job, step):
    job.wait(f"step {step}", 300, lambda: job.records.steps and job.records.newest().step >= step)


def process_of(job, worker):
    """By its environment: the workers of other hosts are known to their agents only."""
    wanted = {f"PLIANT_DIR={job.folder / 'jobs'}".encode(), f"PLIANT_WORKER={worker}".encode()}
    for path in pathlib.Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if wanted <= set((path / "environ").read_bytes().split(b"\0")):
                return int(path.name)
    raise rounds.Failure(f"worker {worker} is gone, nobody killed it: {last_line(job.folder / 'agent.err')}")


def strike(job, victim):
    os.kill(process_of(job, victim), signal.SIGKILL)


def beside(job, rng):
    """Somebody else dies at about the same moment."""
    reach(job, AT - rng.randrange(1, 4))
    strike(job, rng.choice([0, 2]))


def anybody(job, rng):
    reach(job, AT + rng.randrange(-3, 4))
    strike(job, rng.randrange(3))


def waiting_one(job, _):
    """One of those who wait for the evaluation."""
    reach(job, AT - 2)  # the last but one whose record is there while the next is made
    time.sleep(2)
    strike(job, 2)


def evaluating_one(job, _):
    reach(job, AT - 2)  # the last but one whose record is there while the next is made
    time.sleep(2)
    strike(job, 0)


def of_few_steps(job, rng):
    reach(job, 4)
    time.sleep(rng.random())
    strike(job, rng.randrange(2))


SAID = {"throw": "worker 1 ", "exit": "worker 1 ended with status 0 before its loop was finished"}
# name: the habit and its flags, who dies, where it runs, seconds that it may take
CASES = {
    "throws": (["throw"], beside, here, 180),
    "exits": (["exit"], beside, here, 180),
    "forks": (["fork"], anybody, here, 180),
    "loops twice": (["twice"], anybody, here, 180),
    "evaluates, a waiting one dies": (["evaluate", "--seconds", 60], waiting_one, here, 300),
    "evaluates, the evaluating one dies": (["evaluate", "--seconds", 60], evaluating_one, here, 300),
    "1,000 reductions in flight": (["in-flight"], anybody, here, 300),
    "1.6 GiB on two hosts": (["plain", "--bytes", "1600MiB", "--steps", 12], of_few_steps, two_hosts, 600),
    "cgroup full of cache": (["plain", "--bytes", "64MiB"], anybody, cgroup_full_of_cache, 300),
}


def run_case(args, name, turn, folder):
    """What came of it: (steps, views, the longest time between two steps of a worker, in seconds)."""
    words, act, place, limit = CASES[name]
    with place() as where:
        with Job(args, folder, 2 if place is two_hosts else 3, 0, args.seed + turn, command=[args.program, *words], **where) as job:
            act(job, random.Random(args.seed + turn))
            job.wait_end(limit)
            seen = job.verify()
            said = (folder / "agent.err").read_text(errors="replace")
            if SAID.get(words[0], "") not in said:
                raise rounds.Failure(f"nothing was said of it: {said.strip()[-200:]}")
    gaps = [b.t - a.t for own in job.records.steps.values() for a, b in zip(own, own[1:])]
    return seen["steps"], seen["views"], max(gaps)


def everything(args, place):
    rows, failures = [], []
    names = [name for name in CASES if not args.only or args.only in name]
    progress = rounds.Progress(len(names) * args.rounds)
    for name in names:
        found = []
        for turn in range(args.rounds):
            try:
                found.append(run_case(args, name, turn, flags.folder_in(place)))
                progress.line(f"{name}, round {turn + 1}: {found[-1][0]} steps, longest {found[-1][2]:.2f} s")
            except rounds.Failure as why:
                failures.append((name, f"round {turn + 1}", str(why)))
                progress.line(f"{name}, round {turn + 1}: {why}")
        rows.append([name, f"{len(found)} of {args.rounds}", *(
            [f"{max(at[part] for at in found):{form}}" for part, form in ((0, ""), (1, ""), (2, ".2f"))]
            if found else ["–"] * 3)])
    head = ["program", "good", "steps", "views", "longest time between steps, s"]
    text = "\n\n".join(part for part in (
        rounds.report_head("Habits, each with a kill -9", {"Pliant": rounds.first_line([args.pliant, "--version"])}),
        "3 workers (on two hosts 2), steps of 5 ms and more (`bench/elastic/habits.cc`). Steps, views and times are the largest of the "
        "rounds; an evaluation of 60 s is a time between steps, and so is a step with 1.6 GiB.",
        rounds.table(head, rows), rounds.failures_text(failures)) if part)
    return text + "\n", failures


def main():
    parser = flags.parser_of(__doc__, "bench/elastic/habits")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", help="programs whose names have this in them")
    return flags.drive(parser.parse_args(), "habits", everything)


if __name__ == "__main__":
    sys.exit(main())
