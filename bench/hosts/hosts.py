#!/usr/bin/python3
"""All-reduce between hosts: Pliant beside OpenMPI over TCP and Gloo, in alternating rounds. See README.md."""

import argparse
import json
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent), str(HERE.parent / "peers")]
import peers  # noqa: E402  (found through the line above)
import rounds  # noqa: E402
from space import Hosts  # noqa: E402

CONTENDERS = ["pliant-registered", "pliant-trusted", "openmpi", "gloo", "bare"]


def pliant(hosts, ranks, size, kind, args):
    """By the memory's kind; "trusted" is registered memory whose bytes cross unencrypted, as the others' do."""
    memory, network = ("registered", "trusted") if kind == "trusted" else (kind, "protected")
    argv = [args.pliant, "bench", "allreduce", "--ranks", ranks, "--netns", ",".join(hosts.names), "--bytes", size,
            "--memory", memory, "--network", network, "--json"]
    return argv + (["--iterations", args.iterations] if args.iterations else [])


def gloo(hosts, ranks, size, args):
    where = ",".join(f"{name}={address}" for name, address in zip(hosts.names, hosts.addresses))
    argv = [peers.BUILD / "allreduce_gloo", "--bytes", size, "--ranks", ranks, "--hosts", where]
    return argv + (["--iterations", args.iterations] if args.iterations else [])


def openmpi(hosts, ranks, size, args):
    """Started from the switch, which every rank can reach; each rank moves into its host's namespace first."""
    argv = ["ip", "netns", "exec", hosts.switch, "env", "PMIX_MCA_ptl_tcp_remote_connections=1",
            "PMIX_MCA_ptl_tcp_if_include=br0", "mpirun.openmpi", "--allow-run-as-root", "--oversubscribe", "--bind-to",
            "none", "--mca", "pml", "ob1", "--mca", "btl", "self,tcp", "--mca", "btl_tcp_if_include", "eth0",
            "--mca", "btl_tcp_links", "1", "-n", ranks, HERE / "in_host.sh", ranks, ",".join(hosts.names),
            peers.BUILD / "allreduce_openmpi", "--bytes", size, "--ranks", ranks]
    return argv + (["--iterations", args.iterations] if args.iterations else [])


def bare(hosts, ranks, size, args):
    """The bytes alone; ranks of one host would share its cable, so there is one sender per host."""
    del ranks
    where = ",".join(f"{name}={address}" for name, address in zip(hosts.names, hosts.addresses))
    argv = [sys.executable, HERE / "bare.py", "--hosts", where, "--bytes", size]
    return argv + (["--iterations", args.iterations] if args.iterations else [])


def command(contender, hosts, ranks, size, args):
    if contender.startswith("pliant-"):
        return pliant(hosts, ranks, size, contender.removeprefix("pliant-"), args)
    return {"openmpi": openmpi, "gloo": gloo, "bare": bare}[contender](hosts, ranks, size, args)


def wire_limit_ms(hosts, size):
    """2 (h-1)/h of the bytes, out of and into every host."""
    count = len(hosts.names)
    return 2 * (count - 1) / count * size * 8 / (hosts.mbit * 1e6) * 1e3 if hosts.mbit else None


def measure(case, args, failures, progress):
    """{contender: {round: p50}}"""
    count, ranks, mbit, size = case
    found = {name: {} for name in args.contenders}
    with Hosts(count, mbit) as hosts:
        for turn in range(args.rounds):
            for contender in rounds.in_turn(args.contenders, turn):
                where = f"{text_of(case)}, round {turn + 1}"
                try:
                    seen = rounds.last_json(rounds.run(command(contender, hosts, ranks, size, args), args.timeout))
                    if seen.get("verified") is not True:
                        raise rounds.Failure("a result was wrong")
                    found[contender][turn] = seen["p50_ms"]
                    progress.line(f"{where}, {contender}: p50 {rounds.ms_text(seen['p50_ms'])}")
                    if args.json:
                        print(json.dumps({"case": text_of(case), "contender": contender, "round": turn + 1, **seen}))
                except rounds.Failure as failure:
                    failures.append((contender, where, str(failure)))
                    progress.line(f"{where}, {contender}: FAILED, {failure}")
        return found, wire_limit_ms(hosts, size)


def text_of(case):
    count, ranks, mbit, size = case
    speed = f"{mbit} Mbit/s each" if mbit else "unshaped"
    return f"{rounds.size_text(size)}, {count} hosts × {ranks // count} ranks, {speed}"


def table(results, args):
    base = args.contenders[0]
    rows = []
    for case, (found, limit) in results.items():
        for name in args.contenders:
            times = list(found[name].values())
            if not times:
                continue
            middle, low, high = rounds.spread(times)
            ratio = rounds.ratio_text(rounds.ratios(found[name], found[base])) if name != base else "1"
            of_limit = f"{limit / middle:.2f}" if limit else "–"
            rows.append([text_of(case), name, f"{middle:.4g} ({low:.4g} … {high:.4g})", ratio, of_limit])
    return rounds.table(["case", "contender", "p50, ms", f"time / {base}'s", "of the wire's limit"], rows)


def report(results, failures, args):
    versions = {"Pliant": rounds.first_line([args.pliant, "--version"]), "OpenMPI": rounds.package("libopenmpi3"),
                "Gloo": rounds.package("libgloo0")}
    how = ("Hosts are network namespaces on this machine, cabled with veth pairs to a bridge, at the speed that tc tbf "
           f"lets through. fp32 sums, {args.rounds} rounds in turn, each the median of its repetitions: median (lowest "
           "… highest). The wire's limit is 2 (h-1)/h of the bytes at that speed. How it is measured: "
           "`bench/hosts/README.md`.")
    parts = [rounds.report_head("All-reduce between hosts", versions), how, table(results, args),
             rounds.failures_text(failures)]
    return "\n\n".join(part for part in parts if part) + "\n"


def cases(args):
    shapes = [(4, 4), (2, 4)]  # hosts, ranks
    return [(count, ranks, mbit, size) for size in args.bytes for count, ranks in shapes for mbit in args.mbit]


def parse():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bytes", type=rounds.listed(rounds.parse_size), default=[100 << 20])
    parser.add_argument("--mbit", type=rounds.listed(int), default=[0, 1000], help="of each cable; 0: unshaped")
    parser.add_argument("--contenders", type=rounds.listed(str), default=CONTENDERS,
                        help="all others are compared with the first; also pliant-plain")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--iterations", type=int, help="repetitions in a round; by size if not given")
    parser.add_argument("--out", type=pathlib.Path, help="write the result as Markdown")
    parser.add_argument("--json", action="store_true", help="print each result's JSON line instead of the table")
    parser.add_argument("--pliant", default="build/dev/apps/pliant/pliant")
    parser.add_argument("--timeout", type=float, default=600, help="seconds for one run")
    return parser.parse_args()


def sweep(args):
    for peer in {"openmpi", "gloo"} & set(args.contenders):
        peers.build(peer)
    failures, todo = [], cases(args)
    progress = rounds.Progress(len(todo) * args.rounds * len(args.contenders))
    results = {case: measure(case, args, failures, progress) for case in todo}
    return report(results, failures, args), failures


def main():
    args = parse()
    return rounds.drive(args, lambda: sweep(args))


if __name__ == "__main__":
    sys.exit(main())
