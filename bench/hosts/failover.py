#!/usr/bin/python3
"""What it costs to lose the host that has `pliant run` and the coordinator, with etcd outside of the job. See README.md."""

import argparse
import dataclasses
import json
import pathlib
import random
import shutil
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent), str(HERE.parent / "elastic")]
import events as doings  # noqa: E402  (found through the line above)
import gaps  # noqa: E402
import losses  # noqa: E402
import rounds  # noqa: E402
import space  # noqa: E402
from hosts_job import HostsJob  # noqa: E402
from processes import wait_for  # noqa: E402
from results import ENDLESS, Bar, Results, add_job_flags, evaluate, events_table, range_text, workplace  # noqa: E402

ROWS = {"host": "the coordinator's host is lost: cut off and killed"}
BARS = {"host": Bar(1000)}
COORDINATOR_BAR = 2.0  # seconds
SLOTS = [1, 1, 2]
PORT = 2379


class Etcd:
    """One server at the switch, which no host takes with it."""

    def __init__(self, hosts, folder):
        self.hosts, self.folder = hosts, folder
        self.url = f"http://{hosts.switch_address}:{PORT}"

    def __enter__(self):
        argv = ["ip", "netns", "exec", self.hosts.switch, "etcd", "--data-dir", self.folder / "etcd",
                "--listen-client-urls", self.url, "--advertise-client-urls", self.url, "--listen-peer-urls",
                "http://127.0.0.1:0", "--logger=zap", "--log-outputs=stderr"]
        with (self.folder / "etcd.err").open("w") as err:
            self.server = subprocess.Popen([str(word) for word in argv], stdout=err, stderr=err, start_new_session=True)
        ask = ["ip", "netns", "exec", self.hosts.switch, sys.executable, "-c",
               f"import urllib.request; urllib.request.urlopen('{self.url}/health', timeout=2)"]
        wait_for("etcd", 30, lambda: subprocess.run(ask, capture_output=True).returncode == 0)
        return self

    def __exit__(self, *_):
        rounds.stop(self.server)


def coordinator_after(folder, when):
    """When an agent had found the next coordinator, by that one's own events; None if that has not happened."""
    for line in (folder / "records" / "coordinator.jsonl").read_text().splitlines():
        event = json.loads(line)
        if event["t"] > when and event["event"] == "agent":
            return event["t"]
    return None


def one_run(args, turn, rng, folder, results):
    folder.mkdir(parents=True)
    with space.Hosts(len(SLOTS)) as hosts, Etcd(hosts, folder):
        store = ["--store", f"etcd://{hosts.switch_address}:{PORT}"]
        with HostsJob(args, hosts, SLOTS, folder, ENDLESS, args.seed, options=store, at_switch=False) as job:
            members = doings.moment(job, rng, job.workers)
            places = job.places(members)
            victims, pids = places[hosts.names[0]], space.dwellers(hosts.names[0])
            view = job.records.members()[victims[0]][-1].view
            job.check = lambda: None  # its agent will be gone, and that is the point
            now = time.time()
            hosts.cut(hosts.names[0])
            losses.end_processes(pids)
            survivors = [worker for worker in members if worker not in victims]
            job.wait_steps_without(f"the loss of workers {victims}", survivors, view)
            wait_for("another coordinator", 60, lambda: coordinator_after(folder, now))
            results.coordinator_s.append(coordinator_after(folder, now) - now)
            time.sleep(2)  # and what does that cost the others?
            job.records.poll()
            for name in hosts.names[1:]:
                space.kill_dwellers(name)
            job.records.poll()
            job.via = ["ip", "netns", "exec", hosts.switch]
            job.verify()

    def note(event, gap):
        if args.json:
            print(json.dumps({"round": turn + 1, **dataclasses.asdict(event), **dataclasses.asdict(gap)}), flush=True)
    seen = [gaps.Event("host", now, members, victims=victims)]
    return evaluate(seen, job.records.steps, job.workers, turn, results, note)


def measure(args, folder):
    rng, results, failures = random.Random(args.seed), Results(), []
    results.coordinator_s = []
    progress = rounds.Progress(args.rounds)
    for turn in range(args.rounds):
        try:
            wrong = one_run(args, turn, rng, folder / f"run-{turn}", results)
        except (rounds.Failure, gaps.Unclear) as failure:
            wrong = [str(failure)]
        failures += [("pliant", f"round {turn + 1}", why) for why in wrong]
        progress.line(f"round {turn + 1}: {'FAILED, ' + wrong[0] if wrong else 'done'}")
    return report(results, failures, args), failures


def report(results, failures, args):
    how = (f"The demo's network on {len(SLOTS)} hosts with {', '.join(map(str, SLOTS))} workers, batch {args.batch} per "
           f"worker, one thread each, {args.rounds} runs; `pliant run` and the coordinator are on the first host, etcd is "
           "on none of them. The first host's cable is cut and all of its processes are killed at once. The next "
           "coordinator is there when an agent has found it. Every run has passed `pliant verify`, or is listed as a "
           "failure. How it is measured: `bench/hosts/README.md`.")
    head = rounds.report_head("The coordinator's host is lost", {
        "Pliant": rounds.first_line([args.pliant, "--version"]), "etcd": rounds.package("etcd-server")})
    seen = results.coordinator_s
    met = "yes" if seen and max(seen) <= COORDINATOR_BAR else "NO"
    more = rounds.table(["also", "median (lowest … highest)", "bar", "met"],
                        [["until there is another coordinator, s", range_text(seen), f"each ≤ {COORDINATOR_BAR:g} s", met]])
    parts = [head, how, events_table(results, ROWS, BARS), more, rounds.failures_text(failures)]
    return "\n\n".join(part for part in parts if part) + "\n"


def parse():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, help="runs; default 10")
    parser.add_argument("--quick", action="store_true", help="one run: does everything run?")
    add_job_flags(parser)
    args = parser.parse_args()
    args.rounds = args.rounds or (1 if args.quick else 10)
    return args


def main():
    args = parse()
    if not shutil.which("etcd"):
        print("etcd is not installed (Debian: etcd-server)", file=sys.stderr)
        return 2

    def everything():
        with workplace(args) as folder:
            return measure(args, pathlib.Path(folder).resolve())
    return rounds.drive(args, everything)


if __name__ == "__main__":
    sys.exit(main())
