"""Jobs of Pliant whose steps, workers and costs are read from their records."""

import contextlib
import json
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import rounds

BUILD = rounds.ROOT / "build/dev"
PLIANT = BUILD / "apps/pliant/pliant"
SYNTHETIC = BUILD / "examples/synthetic/synthetic"


class Steps:
    """What a folder of records says."""

    def __init__(self, folder):
        self.by_worker, self.events = {}, []
        for path in sorted(pathlib.Path(folder).glob("*.jsonl")):
            for line in path.read_text().splitlines():
                record = json.loads(line)
                if record.get("kind") == "step":
                    self.by_worker.setdefault(record["worker"], []).append(record)
                elif record.get("kind") == "event" and path.name == "agent.jsonl":
                    self.events.append(record)
        steps = {}
        for records in self.by_worker.values():
            for record in records:
                known = steps.setdefault(record["step"], record)
                if record["t"] > known["t"]:
                    steps[record["step"]] = record
        self.rows = [steps[number] for number in sorted(steps)]
        if not self.rows:
            raise rounds.Failure("no records")

    @property
    def sizes(self):
        return [row["size"] for row in self.rows]

    @property
    def durations(self):
        """Of each step but the first: seconds since the one before."""
        return [b["t"] - a["t"] for a, b in zip(self.rows, self.rows[1:])]

    @property
    def worker_seconds(self):
        """From each process's start to its end."""
        began = {event["worker"]: event["t"] for event in self.events if event["event"] == "started"}
        ended = {event["worker"]: event["t"] for event in self.events if event["event"] == "ended"}
        return sum(ended[worker] - began[worker] for worker in began)

    @property
    def seconds(self):
        """From the first worker's start to the last one's end."""
        return (max(event["t"] for event in self.events if event["event"] == "ended")
                - min(event["t"] for event in self.events if event["event"] == "started"))

    def samples(self, row):
        return sum(end - begin for part in row["samples"] for begin, end in part["ranges"])


def command(workers, flags, program, folder):
    words = [PLIANT, "run", "-n", workers, "--threads", 1, "--status", "off", "--output", "quiet", "--record", folder,
             *flags, "--", *program]
    return [str(word) for word in words]


def verified(folder):
    rounds.run([PLIANT, "verify", folder], 120)
    return Steps(folder)


@contextlib.contextmanager
def folder():
    path = pathlib.Path(tempfile.mkdtemp(prefix="pliant-autoscale-"))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def run(workers, flags, program, timeout=1200):
    """To its end; `pliant verify` finds no fault."""
    with folder() as path:
        rounds.run(command(workers, flags, program, path / "records"), timeout)
        return verified(path / "records")


class Running:
    """A job under way."""

    def __init__(self, workers, flags, program, records, name):
        self.name, self.records = name, records
        self.process = subprocess.Popen(command(workers, ["--name", name, *flags], program, records),
                                        stdin=subprocess.DEVNULL, start_new_session=True)

    def ask(self, *words):
        rounds.run([PLIANT, *words], 60)

    def wait_for(self, what, condition, seconds=120):
        end = time.monotonic() + seconds
        while True:
            with contextlib.suppress(rounds.Failure, json.JSONDecodeError):
                steps = Steps(self.records)
                if condition(steps):
                    return steps
            if self.process.poll() is not None:
                raise rounds.Failure(f"the job ended while waiting for {what}")
            if time.monotonic() > end:
                raise rounds.Failure(f"{what}: not within {seconds} s")
            time.sleep(0.05)

    def steady(self, workers, steps=12):
        """So many steps with so many workers, and still."""
        self.wait_for(f"{workers} workers", lambda seen: set(seen.sizes[-steps:]) == {workers}
                      and len(seen.rows) >= steps and len({row["view"] for row in seen.rows[-steps:]}) == 1)

    def stop(self):
        self.ask("stop", self.name)
        self.process.wait(60)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            rounds.stop(self.process)


def idle(steps, before, after):
    """Seconds that those who were there before and after a change of views were silent, beyond an ordinary step: the
    longest. Two steps count on each side, because a change may delay both of them."""
    gaps = []
    for records in steps.by_worker.values():
        old = [record for record in records if record["view"] == before]
        new = [record for record in records if record["view"] == after]
        if len(old) < 8 or len(new) < 8:
            continue
        ordinary = [statistics.median(b["t"] - a["t"] for a, b in zip(part, part[1:])) for part in (old, new)]
        gaps.append(new[1]["t"] - old[-2]["t"] - ordinary[0] - 2 * ordinary[1])
    if not gaps:
        raise rounds.Failure(f"nobody was there in the views {before} and {after}")
    return max(gaps)
