#!/usr/bin/python3
"""A job trains while strangers on its network connect and lie: does it get slower, larger, or let anybody in?
See README.md."""

import argparse
import contextlib
import dataclasses
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent), str(HERE.parent / "elastic")]
import gaps  # noqa: E402  (found through the line above)
import rounds  # noqa: E402
import space  # noqa: E402
from hosts_job import HostsJob, environment_of  # noqa: E402
from processes import wait_for  # noqa: E402
from results import ENDLESS, add_job_flags, range_text, workplace  # noqa: E402

PHASES = ["quiet", "control", "attacked"]
SLOWER = 1.05  # times, at most
GATE = 256  # connections that may wait to be known at one port
SPARE_FILES = 8
GROWTH_MIB = 8  # of a process's memory, at most
SETTLE = 3  # seconds between two phases: whoever is silent has been turned away by then
WARM = 600  # seconds for the first epoch
LOOK = 0.25


class Helper:
    """The program `stranger` in a namespace. Its lines of JSON are what it has to say."""

    def __init__(self, args, place, *words, nice=0):
        argv = ["ip", "netns", "exec", place, "nice", "-n", nice, args.stranger, *words]
        self.process = subprocess.Popen([str(word) for word in argv], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                        text=True, cwd=rounds.ROOT, start_new_session=True)

    def line(self):
        text = self.process.stdout.readline()
        if not text:
            raise rounds.Failure(f"stranger ended with {self.process.wait()}")
        return json.loads(text)

    def ended(self):
        return self.process.poll() is not None

    def end(self):
        """Its last line."""
        self.process.terminate()
        return self.line()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if not self.ended():
            rounds.stop(self.process)
        self.process.stdout.close()


def listeners_in(place):
    """address:port of every TCP port that is open in a namespace, with its process."""
    seen = subprocess.run(["ip", "netns", "exec", place, "ss", "-Hltnp"], capture_output=True, text=True, check=True)
    found = {}
    for line in seen.stdout.splitlines():
        pid = re.search(r"pid=(\d+)", line)
        found[line.split()[3]] = int(pid[1]) if pid else None
    return found


# ---- processes ----

def size_of(pid):
    """(MiB of resident memory, open descriptors, seconds of processor time); None if it is gone."""
    try:
        pages = int(pathlib.Path(f"/proc/{pid}/statm").read_text().split()[1])
        fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        files = len(os.listdir(f"/proc/{pid}/fd"))
    except OSError:
        return None
    ticks = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20, files, ticks


def title_of(pid):
    worker = environment_of(pid).get("PLIANT_WORKER")
    if worker is not None:
        return f"worker {worker}"
    words = pathlib.Path(f"/proc/{pid}/cmdline").read_text().split("\0")
    return " ".join([os.path.basename(words[0]), *(word for word in words[1:2] if word)])


class Sizes:
    """Of all processes of a job: at first, at most, at last."""

    def __init__(self, pids):
        self.titles = {pid: title_of(pid) for pid in pids}
        self.first = {pid: size_of(pid) for pid in pids}
        self.most = {pid: size[:2] for pid, size in self.first.items()}
        self.last = dict(self.first)

    def look(self):
        for pid in self.titles:
            size = size_of(pid)
            if size is None:
                raise rounds.Failure(f"{self.titles[pid]} is gone")
            self.last[pid] = size
            self.most[pid] = tuple(map(max, self.most[pid], size[:2]))

    def files_bounded(self, pid):
        before, most, after = self.first[pid][1], self.most[pid][1], self.last[pid][1]
        return most - before <= GATE + SPARE_FILES and after - before <= SPARE_FILES


# ---- phases ----

@dataclasses.dataclass
class Phase:
    kind: str
    turn: int
    begin: float = 0.0
    end: float = 0.0
    said: dict | None = None  # by the attacker
    processor_s: dict = dataclasses.field(default_factory=dict)  # {pid: seconds}
    grown_mib: dict = dataclasses.field(default_factory=dict)  # {pid: MiB}


class Battlefield:
    """A job, its endpoints, plain listeners beside them, and the place where strangers come from."""

    def __init__(self, args, hosts, job, overheard):
        self.args, self.hosts, self.job, self.overheard = args, hosts, job, overheard
        self.home = hosts.names[-1]
        self.targets = {endpoint: (place, pid) for place in [*hosts.names[:-1], hosts.switch]
                        for endpoint, pid in listeners_in(place).items()}
        if len(self.targets) <= sum(args.slots):
            raise rounds.Failure(f"only {len(self.targets)} open ports were found: {list(self.targets)}")
        self.sizes = Sizes([pid for place in [*hosts.names[:-1], hosts.switch] for pid in space.dwellers(place)])
        self.plain = []

    def open_plain(self, stack):
        for endpoint, (place, _) in self.targets.items():
            self.plain.append(stack.enter_context(
                Helper(self.args, place, "listen", endpoint.rpartition(":")[0])))
        self.plain_targets = [helper.line()["endpoint"] for helper in self.plain]

    def look_until(self, condition):
        """Follows the job meanwhile."""
        seen = 0.0
        while not condition():
            self.job.check()
            self.job.records.poll()
            if time.monotonic() - seen > 4 * LOOK:
                self.sizes.look()
                seen = time.monotonic()
            time.sleep(LOOK)

    def run(self, kind, turn, count):
        self.sizes.look()
        before, phase = dict(self.sizes.last), Phase(kind, turn, time.time())
        if kind == "quiet":
            end = time.monotonic() + count / self.args.rate
            self.look_until(lambda: time.monotonic() >= end)
        else:
            targets = self.targets if kind == "attacked" else self.plain_targets
            with Helper(self.args, self.home, "attack", "--to", ",".join(targets), "--job", self.job.name,
                        "--overheard", self.overheard, "--connections", count, "--rate", self.args.rate,
                        "--wave", self.args.wave, "--seed", 1000 * turn + 1, nice=19) as stranger:
                self.look_until(stranger.ended)
                phase.said = stranger.line()
        phase.end = time.time()
        end = time.monotonic() + SETTLE
        self.look_until(lambda: time.monotonic() >= end)
        for pid, (mib, _, processor_s) in self.sizes.last.items():
            phase.processor_s[pid] = processor_s - before[pid][2]
            phase.grown_mib[pid] = mib - before[pid][0]
        return phase


def step_times(records, begin, end):
    """Milliseconds of all steps that began and ended within; without those that end an epoch, which evaluate."""
    late = gaps.evaluated(records)
    return [(after.t - before.t) * 1e3 for own in records.values() for before, after in zip(own, own[1:])
            if begin <= before.t and after.t <= end and after.step == before.step + 1 and after.step not in late]


def is_one_view(records, phases):
    return len({step.view for own in records.values() for step in own
                if phases[0].begin <= step.t <= phases[-1].end}) == 1


def turned_away(folder):
    """What the job's processes have counted themselves."""
    files = [folder / "agent.err", *folder.glob("output/*.err"), *folder.glob("jobs/*/*.err")]
    said = [path.read_text(errors="replace") for path in files]
    return sum(int(count) for text in said for count in re.findall(r"turned away (\d+) connection", text))


@dataclasses.dataclass
class Outcome:
    phases: list
    records: dict
    sizes: Sizes
    targets: dict
    overheard: int
    turned_away: int
    verified: dict
    listened_s: float = 0.0  # processor time of the plain listeners
    listened: int = 0


def one_job(args, hosts, folder, say):
    overheard = folder / "overheard"
    with contextlib.ExitStack() as stack:
        listening = stack.enter_context(Helper(args, hosts.switch, "capture", overheard))
        job = stack.enter_context(HostsJob(args, hosts, args.slots, folder / "job", ENDLESS, args.seed))
        job.wait_steady(job.workers)
        heard = listening.end()["overheard"]
        wait_for("the listener's end", 10, listening.ended)
        # The first evaluation takes memory that stays.
        job.wait("the second epoch", WARM, lambda: job.records.newest().epoch > 0 and job.is_steady(job.workers))
        job.wait_mid_epoch()
        field = Battlefield(args, hosts, job, overheard)
        field.open_plain(stack)
        say(f"{len(field.targets)} ports, {heard} handshakes overheard")
        phases = []
        for turn in range(args.rounds):
            count = args.connections * (turn + 1) // args.rounds - args.connections * turn // args.rounds
            for kind in rounds.in_turn(PHASES, turn):
                phases.append(field.run(kind, turn, count))
                times = step_times(job.records.steps, phases[-1].begin, phases[-1].end)
                say(f"round {turn + 1}, {kind}: step {statistics.median(times):.1f} ms")
        if not is_one_view(job.records.steps, phases):
            raise rounds.Failure("workers were lost or came during the attack")
        ends = [helper.end() for helper in field.plain]
        counted = turned_away(folder / "job")  # the coordinator's words go with the job
        job.stop()
        verified = job.verify()
    return Outcome(phases, job.records.steps, field.sizes, field.targets, heard, counted, verified,
                   sum(end["cpu_s"] for end in ends), sum(end["accepted"] for end in ends))


# ---- what came out ----

def by_turn(outcome, kind, figure):
    return {phase.turn: figure(phase) for phase in outcome.phases if phase.kind == kind}


def ratio_rows(outcome):
    def times(phase):
        return step_times(outcome.records, phase.begin, phase.end)
    rows = []
    for name, figure in (("median step", statistics.median), ("mean step", statistics.fmean)):
        of = {kind: by_turn(outcome, kind, lambda phase: figure(times(phase))) for kind in PHASES}
        for above, below in (("attacked", "quiet"), ("attacked", "control"), ("control", "quiet")):
            ratios = rounds.ratios(of[above], of[below])
            barred = name == "median step" and above == "attacked"
            rows.append([f"{name}, {above} / {below}", range_text(list(of[above].values())),
                         range_text(list(of[below].values())), rounds.ratio_text(ratios),
                         f"≤ {SLOWER}" if barred else "–",
                         ("yes" if statistics.median(ratios) <= SLOWER else "NO") if barred else "–"])
    return rows


def total(outcome, kind):
    """{kind of lie: {what became of it: how often}} of all such phases."""
    found = {}
    for phase in outcome.phases:
        if phase.kind == kind:
            for lie, tally in phase.said["kinds"].items():
                own = found.setdefault(lie, dict.fromkeys(tally, 0))
                for what, count in tally.items():
                    own[what] += count
    return found


def lies_table(lies):
    columns = {"made": "made", "failed": "no connection", "turned_away": "turned away", "hung_up": "hung up itself",
               "challenged": "challenged", "kept": "kept", "let_in": "let in"}
    rows = [[lie.replace("_", " "), *(f"{tally[what]:,}" for what in columns)] for lie, tally in lies.items()]
    rows.append(["all", *(f"{sum(tally[what] for tally in lies.values()):,}" for what in columns)])
    return rounds.table(["lie", *columns.values()], rows)


def growth_mib(outcome, pid, kind):
    """All phases of a kind together, if each were like the median: a leak grows in every one of them, while a trainer's
    allocator takes some more once and keeps it."""
    grown = [phase.grown_mib[pid] for phase in outcome.phases if phase.kind == kind]
    return statistics.median_low(grown) * len(grown)


def bounded(outcome, pid):
    return growth_mib(outcome, pid, "attacked") <= GROWTH_MIB and outcome.sizes.files_bounded(pid)


def sizes_table(outcome):
    sizes = outcome.sizes
    head = ["process", "memory before, MiB", "after", "by the attack", "by the control", "descriptors before", "most",
            "after", "bounded"]
    rows = []
    for pid, title in sorted(sizes.titles.items(), key=lambda entry: entry[1]):
        first, most, last = sizes.first[pid], sizes.most[pid], sizes.last[pid]
        rows.append([title, f"{first[0]:.1f}", f"{last[0]:.1f}", f"{growth_mib(outcome, pid, 'attacked'):+.1f}",
                     f"{growth_mib(outcome, pid, 'control'):+.1f}", str(first[1]), str(most[1]), str(last[1]),
                     "yes" if bounded(outcome, pid) else "NO"])
    return rounds.table(head, rows)


def price_us(outcome):
    """Processor time per connection of the coordinator, which does little else."""
    pids = {pid for _, pid in outcome.targets.values() if "coordinator" in outcome.sizes.titles.get(pid, "")}
    if not pids:
        return None
    spent, lasted = {}, {}
    for kind in ("quiet", "attacked"):
        phases = [phase for phase in outcome.phases if phase.kind == kind]
        spent[kind] = sum(phase.processor_s[pid] for phase in phases for pid in pids)
        lasted[kind] = sum(phase.end - phase.begin + SETTLE for phase in phases)
    made = sum(phase.said["connections"] for phase in phases) / len(outcome.targets)
    return (spent["attacked"] - spent["quiet"] * lasted["attacked"] / lasted["quiet"]) / made * 1e6


def more_table(outcome):
    attacked = [phase for phase in outcome.phases if phase.kind == "attacked"]
    rows = []
    for kind in ("attacked", "control"):
        said = [phase.said for phase in outcome.phases if phase.kind == kind]
        rows.append([f"connections per second, {kind}",
                     range_text([one["connections"] / one["seconds"] for one in said])])
        rows.append([f"the stranger's processor time, % of a core, {kind}",
                     range_text([100 * one["cpu_s"] / one["seconds"] for one in said])])
    rows.append(["open at once, at most", str(max(phase.said["most_open"] for phase in attacked))])
    if outcome.listened:
        rows.append(["a plain listener's processor time per connection, µs",
                     f"{outcome.listened_s / outcome.listened * 1e6:.1f}"])
    price = price_us(outcome)
    if price is not None:
        rows.append(["the coordinator's processor time per connection, µs", f"{price:.1f}"])
    rows.append(["handshakes overheard", str(outcome.overheard)])
    rows.append(["connections that the job says it turned away", f"{outcome.turned_away:,}"])
    return rounds.table(["also", "median (lowest … highest)"], rows)


def faults(outcome):
    """What must not be, as failures."""
    lies, found = total(outcome, "attacked"), []
    for what, name in (("let_in", "let in"), ("kept", "kept")):
        count = sum(tally[what] for tally in lies.values())
        if count:
            found.append(f"{count} strangers were {name}")
    repeated = sum(phase.said["repeated_challenges"] for phase in outcome.phases if phase.kind == "attacked")
    if repeated:
        found.append(f"{repeated} challenges came twice")
    found += [f"{outcome.sizes.titles[pid]} has grown" for pid in outcome.sizes.titles if not bounded(outcome, pid)]
    return [("pliant", "the attack", why) for why in found]


def report(outcome, failures, args):
    how = (f"The demo's network on {len(args.slots)} hosts with {', '.join(map(str, args.slots))} workers, batch "
           f"{args.batch} per worker, trains undisturbed (quiet), while a stranger connects to all "
           f"{len(outcome.targets) if outcome else 0} ports of the job (attacked), and while it does the same to plain "
           f"listeners in the same namespaces (control): {args.rounds} rounds in turn, {args.connections:,} "
           f"connections each in all, {args.rate:g} per second. The stranger runs at nice 19. How it is measured: "
           "`bench/hosts/README.md`.")
    head = rounds.report_head("Strangers", {"Pliant": rounds.first_line([args.pliant, "--version"])})
    parts = [head, how]
    if outcome:
        seen = outcome.verified
        parts += [rounds.table(["what", "above, ms", "below, ms", "ratio", "bar", "met"], ratio_rows(outcome)),
                  "What became of the lies:", lies_table(total(outcome, "attacked")),
                  f"The job's processes. Bounded: the attack adds at most {GROWTH_MIB} MiB (the median of its phases "
                  f"times their number), {GATE} descriptors for a while, and none for longer:", sizes_table(outcome),
                  more_table(outcome),
                  f"`pliant verify`: {seen['steps']} steps of {seen['workers']} workers, no fault. Nobody was lost."]
    return "\n\n".join(part for part in parts + [rounds.failures_text(failures)] if part) + "\n"


def parse():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--connections", type=int, default=1000000, help="of all attacked phases together")
    parser.add_argument("--rate", type=float, default=2000, help="connections per second")
    parser.add_argument("--wave", type=int, default=2000,
                        help="silent ones at the start of a phase, as fast as they can be made")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--slots", type=rounds.listed(int), default=[1, 1, 2], help="workers of each host")
    parser.add_argument("--quick", action="store_true", help="30,000 connections, 2 rounds: does everything run?")
    add_job_flags(parser)
    parser.add_argument("--stranger", default="build/dev/bench/hosts/stranger")
    args = parser.parse_args()
    if args.quick:
        args.connections, args.rounds = 30000, 2
    args.wave = min(args.wave, args.connections // args.rounds)
    return args


def measure(args):
    outcome, failures = None, []
    with workplace(args) as folder, space.Hosts(len(args.slots) + 1) as hosts:
        try:
            outcome = one_job(args, hosts, pathlib.Path(folder).resolve(),
                              lambda line: print(line, file=sys.stderr, flush=True))
            failures = faults(outcome)
        except (rounds.Failure, gaps.Unclear) as failure:
            failures = [("pliant", "the job", str(failure))]
    if args.json and outcome:
        for phase in outcome.phases:
            print(json.dumps(dataclasses.asdict(phase)))
    return report(outcome, failures, args), failures


def main():
    args = parse()
    return rounds.drive(args, lambda: measure(args))


if __name__ == "__main__":
    sys.exit(main())
