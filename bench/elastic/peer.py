"""torchrun's side: a worker is killed, torchrun ends the others and starts all of them anew from the checkpoint."""

import collections
import json
import os
import signal
import socket
import subprocess
import time

import gaps
from processes import HERE, Known, Undisturbed, last_line, rounds, wait_for

# What `pliant run` gives its workers by default.
KEEP = "glibc.malloc.mmap_threshold=1073741824:glibc.malloc.trim_threshold=4294967296:glibc.malloc.top_pad=67108864"
SETTLED = 10  # steps after a restart before anything else is done
PATIENCE = 180


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Torchrun:
    """A job of `workers` under torchrun, in a folder of its own."""

    def __init__(self, args, workers, folder):
        self.workers, self.folder = workers, folder
        self.known = Known()
        self.files = gaps.Follower(folder, "rank-*.jsonl")
        self.pids, self.made, self.steps = {}, collections.Counter(), []  # by (rank, restart); (t, step, rank, restart)
        self.err = folder / "torchrun.err"
        argv = ["/usr/bin/python3", HERE / "torchrun.py", "--nnodes", 1, "--nproc_per_node", workers,
                "--max_restarts", 100, "--monitor_interval", 0.1, "--master_port", free_port(),
                HERE / "torchrun_job.py", "--records", folder, "--checkpoint", folder / "checkpoint.pt",
                "--every", args.checkpoint_every, "--batch", args.batch]
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "GLIBC_TUNABLES": KEEP, "GLOO_SOCKET_IFNAME": "lo"}
        with self.err.open("w") as err:
            self.process = subprocess.Popen([str(part) for part in argv], stdin=subprocess.DEVNULL, cwd=rounds.ROOT,
                                            stdout=err, stderr=err, env=environment, start_new_session=True)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        with Undisturbed():
            rounds.stop(self.process)
            self.known.kill_rest()

    def poll(self):
        if self.process.poll() is not None:
            raise rounds.Failure(f"torchrun ended with {self.process.returncode}: {last_line(self.err)}")
        for _, text in self.files.lines():
            line = json.loads(text)
            place = (line["rank"], line["restart"])
            if line["kind"] == "start":
                self.pids[place] = line["pid"]
                self.known.add(line["pid"])
            else:
                self.made[place] += 1
                self.steps.append((line["t"], line["step"], *place))

    def has_made(self, restart, count):
        self.poll()
        return all(self.made[rank, restart] >= count for rank in range(self.workers))

    def wait_steps(self, restart, count):
        wait_for(f"torchrun's workers, start {restart}, {count} steps", PATIENCE,
                 lambda: self.has_made(restart, count))

    def kill(self, rank, restart):
        os.kill(self.pids[rank, restart], signal.SIGKILL)


def measure(args, workers, count, rng, folder):
    """The gaps of so many kills, each at a random moment between two checkpoints, and the seconds of a step."""
    with Torchrun(args, workers, folder) as job:
        for restart in range(count):
            # One checkpoint lies behind, so that a restart does not begin at nothing; then anywhere up to the next.
            job.wait_steps(restart, SETTLED + args.checkpoint_every + rng.randrange(args.checkpoint_every))
            time.sleep(rng.uniform(0, 0.2))
            job.kill(rng.randrange(workers), restart)
            job.wait_steps(restart + 1, SETTLED)
        steps = sorted(job.steps)
    return [gaps.gap_of_restart(steps, restart) for restart in range(count)], gaps.restart_step_time(steps)
