#!/usr/bin/python3
"""All-reduce of Pliant beside OpenMPI, MPICH and Gloo, in alternating rounds on this machine. See README.md."""

import argparse
import json
import pathlib
import shlex
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
import rounds  # noqa: E402  (found through the line above)

BUILD = rounds.ROOT / "build" / "peers"
COMPILE = ["-std=c++20", "-O3", "-march=native", "-Wall", "-DOMPI_SKIP_MPICXX", "-DMPICH_SKIP_MPICXX"]
PROGRAMS = {  # name: compiler, source, libraries
    "openmpi": ("mpicxx.openmpi", "mpi_allreduce.cc", []),
    "mpich": ("mpicxx.mpich", "mpi_allreduce.cc", []),
    "gloo": ("g++", "gloo_allreduce.cc", ["-lgloo"]),
}
BASES = ["pliant-registered", "pliant-plain"]
CONTENDERS = ["pliant-registered", "openmpi", "mpich", "gloo", "pliant-plain"]
# The same peers with the input kept ("-out"), and as most programs call them ("-usual"): kept, and on ordinary pages.
VARIANTS = {"-out": ["--out-of-place"], "-usual": ["--out-of-place", "--small-pages"]}
MORE = [peer + suffix for suffix in VARIANTS for peer in ("openmpi", "mpich", "gloo")]


def build(peer):
    compiler, source, libraries = PROGRAMS[peer]
    binary = BUILD / f"allreduce_{peer}"
    needs = [HERE / source, HERE / "repeat.h", pathlib.Path(__file__)]
    if binary.exists() and binary.stat().st_mtime >= max(path.stat().st_mtime for path in needs):
        return
    BUILD.mkdir(parents=True, exist_ok=True)
    print(f"building {binary.relative_to(rounds.ROOT)}", file=sys.stderr)
    fresh = binary.with_suffix(".new")
    rounds.run([compiler, *COMPILE, HERE / source, "-o", fresh, *libraries], timeout=300)
    fresh.rename(binary)


def openmpi_launcher(ranks, size):
    argv = ["mpirun.openmpi", "--allow-run-as-root", "--mca", "pml", "ob1", "--mca", "btl", "self,vader"]
    # --oversubscribe also makes idle ranks yield; binding would then pin several to one core.
    argv += ["--oversubscribe", "--bind-to", "none"] if ranks > rounds.CORES else ["--bind-to", "core"]
    if ranks > 2 and size >= 32 << 20:
        # Of the algorithms of coll/tuned, the ring (4) takes two thirds of the time of its own choice from here on.
        argv += ["--mca", "coll_tuned_use_dynamic_rules", "1", "--mca", "coll_tuned_allreduce_algorithm", "4"]
    return argv + ["-n", ranks]


def mpich_launcher(ranks, _):
    return ["mpirun.mpich"] + (["-bind-to", "core"] if ranks <= rounds.CORES else []) + ["-n", ranks]


def program_options(peer, ranks, size):
    options = ["--bytes", size, "--ranks", ranks]
    if peer == "mpich" and ranks > rounds.CORES:
        # Debian's MPICH never yields: blocking calls would burn whole time slices, 20 ms for 1 KiB.
        options.append("--yield")
    if peer == "gloo" and size <= 1 << 20:
        options += ["--algorithm", "bcube"]
    return options


def split(contender):
    """The peer of a contender, and the options that make it a variant."""
    for suffix, options in VARIANTS.items():
        if contender.endswith(suffix):
            return contender.removesuffix(suffix), options
    return contender, []


def command(contender, ranks, size, args):
    if contender.startswith("pliant-"):
        argv = [args.pliant, "bench", "allreduce", "--ranks", ranks, "--bytes", size, "--memory",
                contender.removeprefix("pliant-"), "--json"]
        argv += ["--iterations", args.iterations] if args.iterations else []
        return argv + args.args.get("pliant", [])
    peer, variant = split(contender)
    launcher = {"openmpi": openmpi_launcher, "mpich": mpich_launcher, "gloo": lambda *_: []}[peer](ranks, size)
    options = program_options(peer, ranks, size) + variant
    for name in ("iterations", "warmup", "buffers_bytes"):
        if getattr(args, name) is not None:
            options += ["--" + name.replace("_", "-"), getattr(args, name)]
    return (launcher[:1] + args.launcher.get(peer, []) + launcher[1:] + [BUILD / f"allreduce_{peer}"] + options
            + args.args.get(peer, []))


def measure(contender, ranks, size, args):
    result = rounds.last_json(rounds.run(command(contender, ranks, size, args), args.timeout))
    if result.get("verified") is not True:
        raise rounds.Failure("a result was wrong")
    if "p50_ms" not in result:
        raise rounds.Failure("no p50_ms in its result")
    return result


def plan(args):
    """(ranks, bytes, round, contender) in the order of running: whatever is compared takes turns."""
    if args.oversubscribed:
        return [(ranks, size, turn, contender) for size in args.bytes for turn in range(args.rounds)
                for ranks in args.ranks for contender in args.contenders]
    return [(ranks, size, turn, contender) for ranks in args.ranks for size in args.bytes
            for turn in range(args.rounds) for contender in rounds.in_turn(args.contenders, turn)]


def build_all(args):
    """{peer: why it could not be built}"""
    unbuilt = {}
    for peer in sorted({split(name)[0] for name in args.contenders} & PROGRAMS.keys()):
        try:
            build(peer)
        except rounds.Failure as failure:
            unbuilt[peer] = f"not built: {failure}"
    return unbuilt


def sweep(args):
    """{(ranks, bytes): {contender: {round: result}}} and the failures."""
    unbuilt, failures = build_all(args), []
    results = {(ranks, size): {name: {} for name in args.contenders} for ranks in args.ranks for size in args.bytes}
    runs = plan(args)
    progress = rounds.Progress(len(runs))
    for ranks, size, turn, contender in runs:
        where = f"{ranks} ranks, {rounds.size_text(size)}, round {turn + 1}"
        try:
            if split(contender)[0] in unbuilt:
                raise rounds.Failure(unbuilt[split(contender)[0]])
            result = results[ranks, size][contender][turn] = measure(contender, ranks, size, args)
            progress.line(f"{where}, {contender}: p50 {rounds.ms_text(result['p50_ms'])}")
            if args.json:
                print(json.dumps({"contender": contender, "round": turn + 1, **result}), flush=True)
        except rounds.Failure as failure:
            failures.append((contender, where, str(failure)))
            progress.line(f"{where}, {contender}: FAILED, {failure}")
    return results, failures


def column(of_rounds, field):
    return {turn: result[field] for turn, result in of_rounds.items() if result.get(field) is not None}


def limits(seen):
    """The bare loop's time per round, measured inside Pliant's runs: the memory limit."""
    for base in BASES:
        times = column(seen.get(base, {}), "limit_ms")
        if times:
            return times
    return {}


def summary(ranks, size, seen, args):
    bases = {base: column(seen[base], "p50_ms") for base in BASES if base in seen}
    head = ["contender", "p50", "p50 of rounds", "min", "p99"] + [f"p50 / {base}" for base in bases]
    rows = []
    for contender, of_rounds in seen.items():
        times = column(of_rounds, "p50_ms")
        middle = rounds.spread(list(times.values()))
        if not middle:
            rows.append([contender, "failed"] + ["–"] * (len(head) - 2))
            continue
        best = min(column(of_rounds, "min_ms").values(), default=middle[1])
        worst = rounds.spread(list(column(of_rounds, "p99_ms").values()))
        rows.append([contender + ("" if len(times) == args.rounds else f" ({len(times)} of {args.rounds} rounds)"),
                     rounds.ms_text(middle[0]), f"{rounds.ms_text(middle[1])}–{rounds.ms_text(middle[2])}",
                     rounds.ms_text(best), rounds.ms_text(worst[0]) if worst else "–"]
                    + [rounds.ratio_text(rounds.ratios(times, base)) for base in bases.values()])
    bare = limits(seen)
    if bare:
        middle = rounds.spread(list(bare.values()))
        rows.append(["bare loop (limit)", rounds.ms_text(middle[0]),
                     f"{rounds.ms_text(middle[1])}–{rounds.ms_text(middle[2])}", "–", "–"]
                    + [rounds.ratio_text(rounds.ratios(bare, base)) for base in bases.values()])
    return f"## {ranks} ranks, {rounds.size_text(size)}\n\n" + rounds.table(head, rows)


def oversubscribed_summary(results, args):
    """Time per byte that has to move, (n+1)*S for n ranks: flat if the cost is memory and not scheduling."""
    head = ["ranks", "size", "contender", "p50", "bytes moved", "ns/KiB moved", f"against {args.ranks[0]} ranks"]
    rows, first = [], {}
    for (ranks, size), seen in results.items():
        for contender, of_rounds in seen.items():
            moved = (ranks + 1) * size
            costs = {turn: ms * 1e6 / (moved / 1024) for turn, ms in column(of_rounds, "p50_ms").items()}
            first.setdefault((size, contender), costs)
            if not costs:
                rows.append([str(ranks), rounds.size_text(size), contender, "failed", "–", "–", "–"])
                continue
            middle = rounds.spread(list(costs.values()))
            time = rounds.spread(list(column(of_rounds, "p50_ms").values()))[0]
            rows.append([str(ranks), rounds.size_text(size), contender, rounds.ms_text(time),
                         f"{moved / 2**20:.4g} MiB", f"{middle[0]:.1f} ({middle[1]:.1f}–{middle[2]:.1f})",
                         rounds.ratio_text(rounds.ratios(costs, first[size, contender]))])
    return f"## More ranks than the {rounds.CORES} cores\n\n" + rounds.table(head, rows)


def report(results, failures, args):
    versions = {"Pliant": rounds.first_line([args.pliant, "--version"]),
                "OpenMPI": rounds.package("libopenmpi3"), "MPICH": rounds.package("libmpich12"),
                "Gloo": rounds.package("libgloo0"), "compiler": rounds.first_line(["g++", "--version"])}
    how = (f"fp32 sums, {args.rounds} rounds in turn. A time is the maximum over ranks; a figure is the median over "
           "rounds of that round's p50; a ratio is taken within each round, then its median with the lowest and "
           "highest round. How it is measured: `bench/peers/README.md`.")
    if args.oversubscribed:
        parts = [oversubscribed_summary(results, args)]
    else:
        how += " A ratio above 1: slower than Pliant."
        parts = [summary(ranks, size, seen, args) for (ranks, size), seen in results.items()]
    parts = [rounds.report_head("All-reduce beside its peers", versions), how, *parts, rounds.failures_text(failures)]
    return "\n\n".join(part for part in parts if part) + "\n"


def named(texts):
    """NAME=ARGS, several times: {name: [args]}."""
    found = {}
    for text in texts:
        name, _, rest = text.partition("=")
        found.setdefault(name, []).extend(shlex.split(rest))
    return found


def parse():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=rounds.listed(int), help="default 2,4 (oversubscribed: 2,8,16,32)")
    parser.add_argument("--bytes", type=rounds.listed(rounds.parse_size),
                        help="default 1Ki,1Mi,16Mi,100Mi (oversubscribed: 1Mi,16Mi)")
    parser.add_argument("--rounds", type=int, default=None, help="default 5")
    parser.add_argument("--contenders", type=rounds.listed(str),
                        help=f"default {','.join(CONTENDERS)}; also {','.join(MORE)}")
    parser.add_argument("--oversubscribed", action="store_true", help="Pliant alone, with many more ranks than cores")
    parser.add_argument("--quick", action="store_true", help="one round of 1Ki and 1Mi: does everything run?")
    parser.add_argument("--out", type=pathlib.Path, help="write the result as Markdown")
    parser.add_argument("--json", action="store_true", help="print each run's JSON line instead of the tables")
    parser.add_argument("--pliant", default="build/dev/apps/pliant/pliant")
    parser.add_argument("--iterations", type=int, help="repetitions; default by size")
    parser.add_argument("--warmup", type=int, help="of the peers; default a tenth of the iterations")
    parser.add_argument("--buffers-bytes", type=rounds.parse_size, help="of the peers; default 1Gi per host")
    parser.add_argument("--args", action="append", default=[], metavar="NAME=ARGS",
                        help="more options for a program: pliant, openmpi, mpich, gloo")
    parser.add_argument("--launcher", action="append", default=[], metavar="NAME=ARGS",
                        help="more options for a launcher: openmpi, mpich")
    parser.add_argument("--timeout", type=float, default=600, help="seconds for one run")
    args = parser.parse_args()
    args.args, args.launcher = named(args.args), named(args.launcher)
    small = [1 << 10, 1 << 20]
    if args.oversubscribed:
        args.ranks = args.ranks or [2, 8, 16, 32]
        args.contenders = args.contenders or ["pliant-registered"]
        args.bytes = args.bytes or ([1 << 20] if args.quick else [1 << 20, 16 << 20])
    args.ranks = args.ranks or [2, 4]
    args.bytes = args.bytes or (small if args.quick else small + [16 << 20, 100 << 20])
    args.contenders = args.contenders or CONTENDERS
    args.rounds = args.rounds or (1 if args.quick else 5)
    unknown = set(args.contenders) - set(CONTENDERS) - set(MORE)
    if unknown:
        parser.error(f"unknown contenders: {', '.join(sorted(unknown))}")
    return args


def main():
    args = parse()

    def measure():
        results, failures = sweep(args)
        return report(results, failures, args), failures
    return rounds.drive(args, measure)


if __name__ == "__main__":
    sys.exit(main())
