"""Storms: jobs that `pliant chaos` hurts, seed after seed. Which of them reach their end, and what do their records prove?

A job is as long as its storm, roughly: the program is told to make so many steps, and `pliant chaos --wait` waits for
the end. A storm is good if the job ends well after all it was asked to do, `pliant verify` finds no fault, and nothing
of the job is left: no process, no directory, no shared memory.
"""

import argparse
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from processes import Known, Undisturbed, last_line, rounds, wait_for  # noqa: E402
from storm_hosts import Here, Spread  # noqa: E402

START = 60  # seconds until the first step
CLEAR = 15  # seconds for a job's processes to be gone after its end
BATCH = {"synthetic": 32, "logistic_regression": 400, "fashion_mnist": 64}
STEP = {"synthetic": 0.0065, "logistic_regression": 0.006, "fashion_mnist": 0.03}  # seconds, roughly
SAMPLES = 60000  # of the programs that read Fashion-MNIST


def program_of(args, name, seconds):
    """(argv, epochs): a program that takes about so many seconds with the storm's number of workers."""
    path = args.build / "examples" / name / name
    if not path.exists():
        raise rounds.Failure(f"{path} is not built")
    samples = seconds / STEP[name] * BATCH[name] * (args.min + args.max) / 2
    if name == "synthetic":
        kept = ["--state", "1Mi"] if args.checkpoint else []
        return [path, *kept, "--parameters", args.parameters, "--compute-ms", 5, "--sleep", "--samples", int(samples)], 1
    epochs = max(1, round(samples / SAMPLES))
    return [path, "--epochs", epochs, "--batch", BATCH[name]], epochs


def processes_with(setting):
    """{pid: name} of processes whose environment has this KEY=VALUE, without this one and without stores."""
    found = {}
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            environment = pathlib.Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
            name, _, stat = pathlib.Path(f"/proc/{pid}/stat").read_text().partition(" (")[2].rpartition(") ")
        except OSError:
            continue  # it has ended, or is another user's
        if setting.encode() in environment and stat[0] not in "ZX" and int(pid) != os.getpid() and name != "etcd":
            found[int(pid)] = name
    return found


def shared_memory():
    return {name for name in os.listdir("/dev/shm") if "pliant" in name}


class Storm:
    """One job in a folder of its own, and the chaos in it. Use it with `with`: nothing of it is left afterwards."""

    def __init__(self, args, name, seed, folder, place):
        self.args, self.name, self.seed, self.folder, self.place = args, name, seed, folder, place
        self.jobs = folder / "jobs"
        self.jobs.mkdir(parents=True, mode=0o700)
        self.environment = {**os.environ, "PLIANT_DIR": str(self.jobs)}
        self.known = Known()
        self.shm = shared_memory()
        self.run = None
        self.epochs = 0

    def __enter__(self):
        return self

    def __exit__(self, *_):
        with Undisturbed():
            for pid in processes_with(f"PLIANT_DIR={self.jobs}"):
                self.known.add(pid)
            self.known.kill_rest()
            if self.run:
                self.run.wait(CLEAR)

    def start(self, words, output):
        with (self.folder / output).open("a") as file:
            process = subprocess.Popen([str(word) for word in words], stdin=subprocess.DEVNULL, stdout=file, stderr=file,
                                       env=self.environment, cwd=self.folder, start_new_session=True)
        self.known.add(process.pid)
        return process

    def rage(self):
        args = self.args
        program, self.epochs = program_of(args, self.name, args.events * args.every * args.margin)
        kept = ["--checkpoint", self.folder / "saved", "--every", args.checkpoint] if args.checkpoint else []
        self.run = self.start([*self.place.via, args.pliant, "run", *self.place.run_flags, "-n", args.workers,
                               "--max", args.max + 2, "--name", "storm",
                               "--threads", 1, "--max-restarts", 1000000, "--seed", self.seed, "--status", "off",
                               "--output", "quiet", "--record", self.folder / "records",
                               "--output-dir", self.folder / "output", *kept, "--", *program], "run.log")
        wait_for("the first step", START, lambda: self.run.poll() is not None or
                 any(path.stat().st_size for path in self.folder.glob("records/worker-*.jsonl")))
        if args.checkpoint:
            wait_for("the first checkpoint", START, lambda: any(self.folder.glob("saved/step-*/checkpoint.json")))
        chaos = self.start([*self.place.via, args.pliant, "chaos", "storm", "--yes", "--wait", "--events", args.events,
                            "--every", f"{args.every}s", "--kinds", self.kinds(),
                            "--seed", self.seed, "--min", args.min, "--max", args.max,
                            "--json", self.folder / "report.json", "--log", self.folder / "attach.log",
                            *self.place.chaos_flags, *args.chaos], "chaos.log")
        try:
            return chaos.wait(args.timeout)
        except subprocess.TimeoutExpired:
            chaos.send_signal(signal.SIGINT)
            chaos.wait(CLEAR)
            raise rounds.Failure(f"the storm does not end within {args.timeout} s") from None

    def kinds(self):
        """With checkpoints everybody may be killed at once."""
        return self.args.kinds or self.place.kinds + (",everybody" if self.args.checkpoint else "")

    def left(self):
        """What is left of the job a while after its end, in words."""
        end = time.monotonic() + CLEAR
        while (pids := processes_with(f"PLIANT_DIR={self.jobs}")) and time.monotonic() < end:
            time.sleep(0.2)
        parts = [f"processes {', '.join(f'{pid} ({name})' for pid, name in pids.items())}"] if pids else []
        if folders := [path.name for path in self.jobs.iterdir()]:
            parts.append(f"directory {', '.join(folders)}")
        if segments := shared_memory() - self.shm:
            parts.append(f"{len(segments)} segments in /dev/shm")
        return ", ".join(parts)

    def complaints(self):
        """Lines of workers and agents that tell of bugs, each once, without what differs from worker to worker."""
        found = {}
        for path in [*self.folder.glob("output/*.err"), self.folder / "run.log", self.folder / "attach.log"]:
            for line in path.read_text(errors="replace").splitlines() if path.exists() else []:
                if re.search(r"\bbug\b|failed|Failure|error|gives? up|terminate|asking to be taken in", line):
                    text = re.sub(r"\d+", "N", line.strip())
                    found.setdefault(text, [0, line.strip()])[0] += 1
        return [f"{count} × {line}" if count > 1 else line for count, line in found.values()]


def judge(storm, status):
    """A row of the table, and what is wrong with it."""
    path = storm.folder / "report.json"
    if not path.exists():
        raise rounds.Failure(f"no report: {last_line(storm.folder / 'chaos.log')}")
    seen = json.loads(path.read_text())
    wrong = []
    if seen["stuck"]:
        wrong.append(f"stuck at step {seen['step']}")
    elif not seen["ended"]:
        wrong.append("did not end")
    exit_code = storm.run.poll()
    killed = any(event["kind"] == "agent" and event["done"] for event in seen["events"])
    if not killed and exit_code not in (0, None):
        wrong.append(f"exit code {exit_code}: {last_line(storm.folder / 'run.log')}")
    if seen["ended"] and not seen["ended_well"]:
        wrong.append(seen["ending"])
    verified = seen["verify"] or {}
    if verified and not verified["ok"]:
        wrong.append(f"verify: {verified['faults'][0]}" + (f" (+{len(verified['faults']) - 1})"
                                                            if len(verified["faults"]) > 1 else ""))
    log = (storm.folder / "chaos.log").read_text(errors="replace")
    epochs = re.search(r"([\d,]+) epochs?,", log)
    if seen["ended"] and epochs and int(epochs[1].replace(",", "")) != storm.epochs:
        wrong.append(f"{epochs[1]} epochs of {storm.epochs}, last seen at step {seen['step']}")
    if status not in (0, 1):
        wrong.append(f"pliant chaos: status {status}: {last_line(storm.folder / 'chaos.log')}")
    if seen["ended"] and (left := storm.left()):
        wrong.append(f"left: {left}")
    return seen, wrong


def text_of(ms):
    return "–" if ms is None else f"{ms:.0f}"


def row_of(name, seed, seen, wrong):
    verified = seen["verify"] or {}
    return [f"{name} {seed}", str(seen["all"]["done"]), str(seen["all"]["skipped"]),
            str(verified.get("steps", seen["step"])), str(verified.get("views", "–")), str(verified.get("workers", "–")), f"{seen['usual_step_ms']:.1f}",
            *(text_of(seen["all"][key]) for key in ("p50_ms", "p99_ms", "worst_ms")), "no" if wrong else "yes"]


def kinds_table(reports):
    """Gaps by kind over all storms."""
    gaps = {}
    for seen in reports:
        for event in seen["events"]:
            if event["done"]:
                gaps.setdefault(event["kind"], []).append(event["gap_ms"])
    rows = []
    for kind, all_of_it in sorted(gaps.items()):
        known = sorted(gap for gap in all_of_it if gap is not None)
        at = lambda part: text_of(known[min(int(part * len(known)), len(known) - 1)] if known else None)  # noqa: E731
        rows.append([kind, str(len(all_of_it)), at(0.5), at(0.99), at(1)])
    return rounds.table(["kind", "events", "p50, ms", "p99, ms", "worst, ms"], rows)


def everything(args, say):
    """All storms: the report's text, and whether every one was good."""
    rows, reports, failures, kept = [], [], [], pathlib.Path(tempfile.mkdtemp(prefix="pliant-storm-"))
    for at in range(args.seeds):
        seed = args.first_seed + at
        name = args.programs[at % len(args.programs)]
        folder = kept / f"{name}-{seed}"
        folder.mkdir()
        place = Spread(args.hosts, args.slots, args.mbit, args.etcd, folder) if args.hosts else Here()
        with place, Storm(args, name, seed, folder, place) as storm:
            try:
                seen, wrong = judge(storm, storm.rage())
                reports.append(seen)
                rows.append(row_of(name, seed, seen, wrong))
            except rounds.Failure as failure:
                wrong = [str(failure)]
            said = storm.complaints() if wrong else []
        say(f"{name}, seed {seed}: {'; '.join(wrong) or 'good'}")
        if wrong:
            failures.append((name, f"seed {seed}", "; ".join(wrong), said))
        elif not args.keep:
            shutil.rmtree(folder)
    return report(args, rows, reports, failures, kept), not failures


def report(args, rows, reports, failures, kept):
    parts = [rounds.report_head("Storms", {"Pliant": rounds.first_line([args.pliant, "--version"])}),
             f"{args.seeds} storms of {args.events} events, one in {args.every} s, kinds "
             f"`{args.kinds or 'all that apply'}`, {args.workers} workers at first, {args.min} to "
             f"{args.max} later. Gaps are the longest times between two steps after an event, evaluations left out."]
    if rows:
        parts.append(rounds.table(["storm", "events", "skipped", "steps", "views", "workers", "usual step, ms", "p50, ms",
                                   "p99, ms", "worst, ms", "good"], rows))
    if reports:
        parts.append(kinds_table(reports))
    for name, seed, wrong, said in failures:
        parts.append(f"**{name}, {seed}**: {wrong}" + "".join(f"\n    {line[:200]}" for line in said[:12]))
    if failures or args.keep:
        parts.append(f"Records and logs: {kept}")
    else:
        kept.rmdir()
    return "\n\n".join(parts) + "\n"


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=rounds.ROOT / "build/dev", help="default build/dev")
    parser.add_argument("--pliant", help="default: in the build's folder")
    parser.add_argument("--programs", type=rounds.listed(str), default=["synthetic", "logistic_regression"],
                        help="examples to run in turn: synthetic, logistic_regression, fashion_mnist")
    parser.add_argument("--parameters", default="1Mi", help="of synthetic; default 1Mi. With many, copies take time")
    parser.add_argument("--seeds", type=int, default=10, help="so many storms; default 10")
    parser.add_argument("--first-seed", type=int, default=1)
    parser.add_argument("--events", type=int, default=200, help="of each; default 200")
    parser.add_argument("--every", type=float, default=0.7, help="seconds between events, on average; default 0.7")
    parser.add_argument("--margin", type=float, default=1.3, help="how much longer than its storm a job should take")
    parser.add_argument("--kinds", help="default: those of pliant chaos; with --hosts also hosts, links and the store")
    parser.add_argument("--checkpoint", type=int, default=0, metavar="STEPS",
                        help="a checkpoint every so many steps, and kills of everybody at once; default: none")
    parser.add_argument("--hosts", type=int, default=0, help="network namespaces as hosts, as root; default: none")
    parser.add_argument("--slots", type=int, default=2, help="of each host; default 2")
    parser.add_argument("--mbit", type=int, default=1000, help="of a host's cable, per second; default 1000")
    parser.add_argument("--etcd", action="store_true", help="a store for the job on several hosts, which is hurt too")
    parser.add_argument("--workers", type=int, default=3)
    parser.add_argument("--min", type=int, default=2)
    parser.add_argument("--max", type=int, default=6)
    parser.add_argument("--timeout", type=float, default=1800, help="seconds for one storm")
    parser.add_argument("--keep", action="store_true", help="records and logs of good storms too")
    parser.add_argument("--quick", action="store_true", help="two short storms: does everything run?")
    parser.add_argument("--out", type=pathlib.Path, help="write the report there")
    parser.add_argument("chaos", nargs="*", help="after --: more flags for pliant chaos")
    args = parser.parse_args()
    if args.quick:
        args.seeds, args.events = 2, 15
    args.build = args.build.resolve()
    args.pliant = pathlib.Path(args.pliant or args.build / "apps/pliant/pliant").resolve()
    return args


def main():
    rounds.stop_cleanly_on_sigterm()
    args = arguments()
    text, good = everything(args, lambda line: print(line, file=sys.stderr, flush=True))
    print(text)
    if args.out:
        args.out.write_text(text)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
