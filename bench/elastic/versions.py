#!/usr/bin/python3
"""Two builds of Pliant in turn: what events cost those who stay, how long steps and all-reduces take. Is the one worse
than the other in anything? Neither needs LibTorch. See README.md."""

import collections
import hashlib
import json
import pathlib
import random
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent), str(HERE.parent / "hosts")]
import events as doings  # noqa: E402  (found through the line above)
import flags  # noqa: E402
import gaps  # noqa: E402
import losses  # noqa: E402
import space  # noqa: E402
from hosts_job import HostsJob  # noqa: E402
from job import Job  # noqa: E402
from processes import rounds  # noqa: E402
from results import Results, do_all, evaluate  # noqa: E402

REDUCTIONS = [(2, 4 << 10), (2, 1 << 20), (2, 64 << 20), (4, 1 << 20)]  # ranks, bytes
MEMORIES = ["registered", "plain"]
NAMES = {**losses.ROWS, "replacement": "join after the kill", "coordinator": "kill -9 of the coordinator",
         "agent": "kill -9 of the agent", "nothing": "the worst step of a while"}


# ---- one build, one round ----

class Figures:
    """What one round of one build has given."""

    def __init__(self):
        self.ms = {}  # {what: [what the table shows, what the builds are compared by]}
        self.faults = []

    def add_events(self, results, turn, workers, where):
        """An event's gap may be zero, so that builds are compared by its silence: the gap and an ordinary step."""
        for kind, seen in results.gaps.items():
            of_turn = seen[turn]
            self.ms[f"{where}{NAMES.get(kind, kind)}"] = [
                rounds.spread([gap.ms for gap in of_turn])[0], rounds.spread([gap.silence_ms for gap in of_turn])[0]]
        step = results.steps_ms["pliant"][turn]
        self.ms[f"{where}a step of {workers}"] = [step, step]


def watch(args, job, kinds, actions, turn, where, figures):
    """Each kind of event in random order, the same for both builds."""
    results, rng = Results(), random.Random(args.seed + turn)
    results.whole_s = job.whole_s = []
    with job:
        seen = do_all(job, kinds, actions, args.times, rng, results)
        job.stop()
        try:
            job.verify()
        except rounds.Failure as why:  # told, and the times still are what they are
            figures.faults.append(f"{where}{why}")
    unclear = evaluate(seen, job.records.steps, job.workers, turn, results, lambda *_: None)
    figures.faults += [f"{where}{why}" for why in unclear]
    figures.add_events(results, turn, job.workers, where)


def command_of(args, program):
    return [program, "--parameters", args.parameters, "--compute-ms", args.compute_ms, "--steps", 1 << 20]


def run_events(args, program, turn, folder, figures):
    job = Job(args, folder, args.workers, 0, args.seed, command=command_of(args, program))
    watch(args, job, args.events, doings.ACTIONS, turn, "", figures)


def run_losses(args, program, turn, folder, figures):
    """The same on hosts that are network namespaces, and hosts that are lost."""
    with space.Hosts(len(args.slots)) as hosts:
        job = HostsJob(args, hosts, args.slots, folder, 0, args.seed, command=command_of(args, program))
        watch(args, job, list(losses.ACTIONS), losses.ACTIONS, turn, f"{len(args.slots)} hosts: ", figures)


def run_reductions(args, figures):
    for ranks, size in args.reductions:
        for memory in MEMORIES:
            argv = [args.pliant, "bench", "allreduce", "--ranks", ranks, "--bytes", size, "--memory", memory, "--json"]
            result = rounds.last_json(rounds.run(argv, 300))
            if result.get("verified") is not True:
                raise rounds.Failure("a result was wrong")
            what = f"all-reduce, {ranks} ranks, {rounds.size_text(size)}, {memory}"
            figures.ms[what] = [result["p50_ms"]] * 2


def run_round(args, build, turn, place):
    """Whatever fails, the rest is measured."""
    args.pliant, program = build
    figures = Figures()
    parts = [lambda: run_events(args, program, turn, flags.folder_in(place), figures)] if args.events else []
    parts += [lambda: run_losses(args, program, turn, flags.folder_in(place), figures)] if args.slots else []
    for part in [*parts, lambda: run_reductions(args, figures)]:
        try:
            part()
        except (rounds.Failure, gaps.Unclear) as why:
            figures.faults.append(str(why))
    return figures


# ---- all rounds, those of earlier runs too ----

class Rounds:
    """What was measured, as lines of JSON in a file, if there is to be one. Rounds that it has are not made again."""

    def __init__(self, path, setting):
        self.path, self.setting, self.lines = path, setting, []
        for text in path.read_text().splitlines() if path and path.exists() else []:
            line = json.loads(text)
            if line["setting"] != setting:
                other = [name for name in setting if line["setting"].get(name) != setting[name]]
                raise rounds.Failure(f"{path} has rounds with other {', '.join(other) or 'settings'}")
            self.lines.append(line)

    def has(self, turn, build):
        return any((line["round"], line["build"]) == (turn, build) for line in self.lines)

    def add(self, turn, build, version, figures):
        self.lines.append({"round": turn, "build": build, "version": version, "setting": self.setting,
                           "ms": figures.ms, "faults": figures.faults})
        if self.path:
            with self.path.open("a") as file:
                file.write(json.dumps(self.lines[-1]) + "\n")

    def figures(self):
        """{what: {build: {round: [shown, compared]}}}"""
        found = collections.defaultdict(lambda: collections.defaultdict(dict))
        for line in self.lines:
            for what, values in line["ms"].items():
                found[what][line["build"]][line["round"]] = values
        return found

    def failures(self):
        return [(line["build"], f"round {line['round'] + 1}", why) for line in self.lines for why in line["faults"]]


def sweep(args, place, kept):
    todo = [(turn, name) for turn in range(args.rounds) for name in rounds.in_turn(list(args.builds), turn)
            if not kept.has(turn, name)]
    progress = rounds.Progress(len(todo))
    for turn, name in todo:
        build = args.builds[name]
        figures = run_round(args, build, turn, place)
        kept.add(turn, name, rounds.first_line([build[0], "--version"]), figures)
        progress.line(f"{name}, round {turn + 1}: " + ("; ".join(figures.faults) or f"{len(figures.ms)} figures"))


# ---- what came out ----

def cell(by_turn):
    middle, low, high = rounds.spread([shown for shown, _ in by_turn.values()])
    return f"{middle:.3g} ({low:.3g} … {high:.3g})"


def verdict(this, other):
    """The ratios of the rounds that have both, and whether they agree."""
    ratios = rounds.ratios({turn: value for turn, (_, value) in this.items()},
                           {turn: value for turn, (_, value) in other.items()})
    if not ratios:
        return ["–", "", "0"]
    agreed = "worse" if min(ratios) > 1 else "better" if max(ratios) < 1 else "alike"
    return [rounds.ratio_text(ratios), agreed, str(len(ratios))]


def report(args, kept):
    rows = [[what, cell(by_build["other"]), cell(by_build["this"]), *verdict(by_build["this"], by_build["other"])]
            for what, by_build in kept.figures().items() if by_build["this"] and by_build["other"]]
    versions = {name: f"{rounds.first_line([build[0], '--version'])} ({build[0]})"
                for name, build in args.builds.items()}
    how = (f"Milliseconds, median (lowest … highest) of {args.rounds} rounds, the builds in turn; {args.workers} workers of "
           f"examples/synthetic with {args.parameters} bytes of parameters and {args.compute_ms:g} ms of work. Events: the "
           "time beyond ordinary steps, of the survivor that was silent longest; of coordinator, agent and nothing, the "
           "worst step of the next seconds. *Ratio*: this over other, round by round; of events with an ordinary step in "
           "it, as a gap may be zero. It is *worse* or *better* where all rounds say so.")
    parts = [rounds.report_head("Two versions in turn", versions), how,
             rounds.table(["what", "other", "this", "ratio", "", "rounds"], rows), rounds.failures_text(kept.failures())]
    return "\n\n".join(part for part in parts if part) + "\n"


def digest_of(files):
    try:
        return hashlib.sha256(b"".join(pathlib.Path(file).read_bytes() for file in files)).hexdigest()[:16]
    except OSError as error:
        raise rounds.Failure(f"{error.filename}: {error.strerror}") from None


def everything(args, place):
    setting = {name: getattr(args, name) for name in
               ("workers", "parameters", "compute_ms", "times", "seed", "events", "slots", "reductions")}
    setting["builds"] = {name: digest_of(build) for name, build in args.builds.items()}
    kept = Rounds(args.kept, json.loads(json.dumps(setting)))
    sweep(args, place, kept)
    return report(args, kept), kept.failures()


def main():
    parser = flags.parser_of(__doc__)
    flags.add_against(parser, required=True)
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--times", type=int, default=1, help="each event in a round; default 1")
    parser.add_argument("--events", type=rounds.listed(str), default=list(doings.ACTIONS), help="default: all")
    parser.add_argument("--slots", type=rounds.listed(int), default=[], metavar="N,N,…",
                        help="also on so many hosts with so many workers each, which are lost: network namespaces, as "
                             "root; bench/hosts/losses.py has 1,1,2")
    parser.add_argument("--no-reductions", dest="reductions", action="store_const", const=[], default=REDUCTIONS)
    parser.add_argument("--workers", type=int, default=3)
    parser.add_argument("--parameters", type=rounds.parse_size, default=3400 << 10, help="bytes")
    parser.add_argument("--compute-ms", type=float, default=5)
    parser.add_argument("--json", dest="kept", type=pathlib.Path, metavar="FILE",
                        help="add a line for each round of each build; with rounds of these builds and flags in it already, "
                             "only those that are missing up to --rounds are made")
    args = parser.parse_args()
    unknown = set(args.events) - doings.ACTIONS.keys()
    if unknown:
        parser.error(f"unknown: {', '.join(sorted(unknown))}")
    args.builds = flags.builds_of(args)
    return flags.drive(args, "versions", everything)


if __name__ == "__main__":
    sys.exit(main())
