"""Training runs whose steps are read from their records."""

import dataclasses
import json
import pathlib
import re
import shutil
import statistics
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import rounds

BUILD = rounds.ROOT / "build/dev"
DATA = "/usr/share/datasets/fashion-mnist"


@dataclasses.dataclass
class Run:
    """One job, from its records and its output."""
    losses: list      # by step
    rates: list
    batches: list
    sizes: list
    accuracies: list  # %, by epoch
    noise: list       # noise scales, by epoch
    ends: list = None   # steps until each of these accuracies
    seconds: float = 0  # from the first step to the last

    @property
    def samples(self):
        total, sums = 0, []
        for batch in self.batches:
            total += batch
            sums.append(total)
        return sums


def read(folder, output):
    steps = {}
    for path in folder.glob("worker-*.jsonl"):
        for line in path.read_text().splitlines():
            record = json.loads(line)
            if record.get("step") is not None and record.get("kind", "step") == "step":
                steps[record["step"]] = record
    if not steps:
        raise rounds.Failure("no records")
    if sorted(steps) != list(range(len(steps))):
        raise rounds.Failure("steps are missing in the records")
    rows = [steps[number] for number in sorted(steps)]
    accuracies = [float(found) for found in re.findall(r"accuracy ([\d.]+) %", output)]
    noise = [float(found) for found in re.findall(r"noise scale ([\d.]+)", output)]
    return Run([row["loss"] for row in rows], [row["lr"] for row in rows],
               [sum(end - begin for part in row["samples"] for begin, end in part["ranges"]) for row in rows],
               [row["size"] for row in rows], accuracies, noise,
               [int(found) for found in re.findall(r"  step (\d+)  workers", output)],
               max(row["t"] for row in rows) - min(row["t"] for row in rows))


def train(program, arguments, workers=1, most=None, policies=(), seed=1, timeout=1200):
    """Runs `pliant run … -- program` and checks its records with `pliant verify`."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix="pliant-adaptive-"))
    try:
        flags = ["-n", workers, "--max", most or workers, "--threads", 1, "--seed", seed, "--status", "off",
                 "--output", "rank0", "--record", folder]
        for policy in policies:
            flags += ["--policy", policy]
        pliant = BUILD / "apps/pliant/pliant"
        output = rounds.run([pliant, "run", *flags, "--", BUILD / f"examples/{program}/{program}", "--data", DATA, *arguments], timeout)
        rounds.run([pliant, "verify", folder], timeout)
        return read(folder, output)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def smooth(values, width):
    """Means of the last `width` values."""
    out, total = [], 0
    for i, value in enumerate(values):
        total += value
        if i >= width:
            total -= values[i - width]
        out.append(total / min(i + 1, width))
    return out


def smooth_by_samples(losses, batches, samples):
    """Means over the steps that the last `samples` samples were in, so that noise does not depend on the batch."""
    out, first, total, weight = [], 0, 0.0, 0
    for loss, batch in zip(losses, batches):
        total += loss * batch
        weight += batch
        while weight - batches[first] >= samples:
            total -= losses[first] * batches[first]
            weight -= batches[first]
            first += 1
        out.append(total / weight)
    return out


def mean_and_deviation(values):
    return statistics.mean(values), statistics.stdev(values) if len(values) > 1 else 0.0
