#!/usr/bin/python3
"""A worker that stays while thousands of others die beside it, the agent that starts them and the coordinator: do
descriptors, mappings, threads or memory grow? See README.md."""

import os
import pathlib
import random
import signal
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]
import flags  # noqa: E402  (found through the line above)
from job import Job  # noqa: E402
from processes import rounds  # noqa: E402

PATIENCE = 60  # seconds for a replacement to come
# What one moment differs from another. Above 5,000 views, even 100 bytes for each would be seen.
SLACK = {"descriptors": 2, "mappings": 12, "threads": 1, "memory, MiB": 0.4}


def look(pid):
    """What a process has."""
    proc = pathlib.Path(f"/proc/{pid}")
    status = dict(line.split(":", 1) for line in (proc / "status").read_text().splitlines() if ":" in line)
    return {"descriptors": len(os.listdir(proc / "fd")), "mappings": len((proc / "maps").read_text().splitlines()),
            "threads": int(status["Threads"]),
            "memory, MiB": round((int(status["RssAnon"].split()[0]) + int(status["RssShmem"].split()[0])) / 1024, 2)}


class LongJob(Job):
    """Keeps no records that are over."""

    def wait_members(self, workers):
        def all_there():
            members = self.records.members()
            return len(members) == workers and 0 in members and all(
                own[-1].size == workers for own in members.values())
        self.wait(f"{workers} workers", PATIENCE, all_there)
        return sorted(self.records.members())

    def forget(self):
        newest = self.records.newest().view
        for worker in [worker for worker, own in self.records.steps.items() if not own or own[-1].view < newest]:
            del self.records.steps[worker]
        for own in self.records.steps.values():
            del own[:-20]


def look_at_all(pids):
    """The same of all of them; of those who run the job, what may grow: they have one thread and few mappings."""
    seen = look(pids["worker 0"])
    for who in ("agent", "coordinator"):
        own = look(pids[who])
        seen.update({f"{who}'s descriptors": own["descriptors"], f"{who}'s memory, MiB": own["memory, MiB"]})
    return seen


def settled(job, pids):
    """The least of some looks once all are there: what is in use only now and then is not what stays."""
    job.wait_steady(job.workers, PATIENCE)
    looks = []
    for _ in range(20):
        looks.append(look_at_all(pids))
        time.sleep(0.05)
    return {what: min(one[what] for one in looks) for what in looks[0]}


def slack_of(what):
    return SLACK[what.rpartition("'s ")[2]]


def soak(args, folder):
    """[(views, looks)]: from a hundred views on, because pools fill up at first."""
    rng = random.Random(args.seed)
    command = [args.program, "--parameters", args.parameters, "--compute-ms", 2, "--sleep", "--steps", 1 << 20]
    seen, kills, began = [], 0, time.monotonic()
    with LongJob(args, folder, args.workers, 0, args.seed, command=command) as job:
        job.wait_steady(args.workers)
        status = job.status()
        pids = {"worker 0": job.pids()[0], "agent": status["agent"]["pid"], "coordinator": status["coordinator"]["pid"]}
        marks = [100 + (args.views - 100) * part // args.looks for part in range(args.looks + 1)]
        while marks:
            members = job.wait_members(args.workers)
            view = job.records.newest().view
            if view >= marks[0]:
                seen.append((view, settled(job, pids)))
                print(f"{view} views, {kills} kills, {time.monotonic() - began:.0f} s: {seen[-1][1]}", file=sys.stderr,
                      flush=True)
                marks.pop(0)
                continue
            others = job.pids()
            for victim in rng.sample([member for member in members if member != 0], rng.choice([1, 1, 2])):
                if victim in others:
                    os.kill(others[victim], signal.SIGKILL)
                    kills += 1
            job.forget()
        job.stop()
        job.verify()
    return seen, kills


def everything(args, place):
    seen, kills = soak(args, place)
    first, last = seen[0][1], seen[-1][1]
    failures = [("soak", f"{seen[-1][0]} views", f"{what}: {first[what]} at first, {last[what]} in the end")
                for what in first if last[what] > first[what] + slack_of(what)]
    rows = [[str(view), *(str(value) for value in looked.values())] for view, looked in seen]
    text = "\n\n".join(part for part in (
        rounds.report_head("A long life", {"Pliant": rounds.first_line([args.pliant, "--version"])}),
        f"{args.workers} workers of examples/synthetic with {args.parameters} bytes of parameters; {kills} others were "
        "killed with SIGKILL and replaced beside worker 0, of which this is unless it says otherwise; its shared memory "
        "counts once mapped. The records passed `pliant verify`.",
        rounds.table(["views", *first], rows), rounds.failures_text(failures)) if part)
    return text + "\n", failures


def main():
    parser = flags.parser_of(__doc__)
    parser.add_argument("--views", type=int, default=5000, help="so many changes of view")
    parser.add_argument("--looks", type=int, default=10, help="lines of the table")
    parser.add_argument("--workers", type=int, default=3)
    parser.add_argument("--parameters", type=rounds.parse_size, default=16 << 20, help="bytes; default 16Mi")
    return flags.drive(parser.parse_args(), "soak", everything)


if __name__ == "__main__":
    sys.exit(main())
