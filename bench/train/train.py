#!/usr/bin/python3
"""Training steps of Pliant beside PyTorch's DDP on Gloo, in alternating rounds on this machine. See README.md."""

import argparse
import json
import pathlib
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
import rounds  # noqa: E402  (found through the line above)

# batch per process, steps, warm-up: steps for about ten seconds on two slow cores
MODELS = {"cnn": (64, 150, 10), "resnet": (64, 40, 5), "mlp": (32, 40, 5)}
SYSTEMS = ["pliant", "ddp"]
RANKS = 2


def kinds(args):
    return [(system, reduce) for system in args.systems for reduce in (True, False)]


def kind_text(kind):
    return kind[0] + ("" if kind[1] else ", no reduction")


def measure(kind, model, args, folder):
    system, reduce = kind
    batch, steps, warmup = args.sizes[model]
    options = ["--model", model, "--batch", batch, "--steps", steps, "--warmup", warmup]
    options += [] if reduce else ["--no-reduce"]
    # What `pliant run` gives its workers by default: without it both sides spend a third of a step in page faults.
    keep = "glibc.malloc.mmap_threshold=1073741824:glibc.malloc.trim_threshold=4294967296:glibc.malloc.top_pad=67108864"
    environment = {"OMP_NUM_THREADS": str(args.threads), "GLIBC_TUNABLES": keep}
    if system == "ddp":
        argv = ["/usr/bin/python3", HERE / "ddp_gloo.py", *options, "--threads", args.threads, "--json", *args.ddp_args]
        text = rounds.run(argv, args.timeout, environment)
    else:
        answer = folder / "pliant.json"
        answer.unlink(missing_ok=True)
        argv = [args.pliant, "run", "-n", RANKS, "--output", args.output, "--", args.trainer, *options,
                "--threads", args.threads, "--json-file", answer, *args.pliant_args]
        rounds.run(argv, args.timeout, environment)
        if not answer.exists():
            raise rounds.Failure("it wrote no result")
        text = answer.read_text()
    result = rounds.last_json(text)
    for field, wanted in (("model", model), ("batch", batch), ("ranks", RANKS), ("reduce", reduce)):
        if result.get(field) != wanted:
            raise rounds.Failure(f"{field} is {result.get(field)} in its result, not {wanted}")
    return result


def sweep(args, folder):
    """{model: {(system, reduce): {round: result}}} and the failures."""
    results, failures = {}, []
    progress = rounds.Progress(len(args.models) * args.rounds * len(kinds(args)))
    for model in args.models:
        seen = results[model] = {kind: {} for kind in kinds(args)}
        for turn in range(args.rounds):
            for kind in rounds.in_turn(kinds(args), turn):
                where = f"{model}, round {turn + 1}"
                try:
                    result = seen[kind][turn] = measure(kind, model, args, folder)
                    progress.line(f"{where}, {kind_text(kind)}: p50 {rounds.ms_text(result['p50_ms'])}")
                    if args.json:
                        print(json.dumps({"round": turn + 1, **result}), flush=True)
                except rounds.Failure as failure:
                    failures.append((kind_text(kind), where, str(failure)))
                    progress.line(f"{where}, {kind_text(kind)}: FAILED, {failure}")
    return results, failures


def column(of_rounds, field="p50_ms"):
    return {turn: result[field] for turn, result in of_rounds.items()}


def exposed(seen, system):
    """Per round: the step's time less that of the same replicas without reduction."""
    whole, alone = (column(seen.get((system, reduce), {})) for reduce in (True, False))
    return {turn: whole[turn] - alone[turn] for turn in whole.keys() & alone.keys()}


def range_text(values):
    seen = rounds.spread(list(values.values()))
    return f"{seen[0]:.3g} ({seen[1]:.3g} … {seen[2]:.3g})" if seen else "failed"


def exposed_ratio(seen):
    # Of the medians, not round by round: in a single round the difference may be noise around zero.
    middle = [rounds.spread(list(exposed(seen, system).values())) for system in SYSTEMS]
    if None in middle or middle[1][0] <= 0:
        return "–"
    return f"{max(middle[0][0], 0.0) / middle[1][0]:.2f}"


def summary(model, seen, args):
    batch, steps, _ = args.sizes[model]
    head = ["system", "step, ms", "without reduction, ms", "exposed, ms", "fastest step, ms"]
    rows = []
    for system in args.systems:
        steps_of = seen[system, True]
        fastest = min(column(steps_of, "min_ms").values(), default=None)
        rows.append([system, range_text(column(steps_of)), range_text(column(seen[system, False])),
                     range_text(exposed(seen, system)), f"{fastest:.3g}" if fastest is not None else "–"])
    text = f"## {model}, batch {batch}, {steps} steps\n\n" + rounds.table(head, rows)
    if set(args.systems) == set(SYSTEMS):
        step = rounds.ratio_text(rounds.ratios(column(seen["pliant", True]), column(seen["ddp", True])))
        alone = rounds.ratio_text(rounds.ratios(column(seen["pliant", False]), column(seen["ddp", False])))
        text += "\n\n" + rounds.table(["pliant / ddp", "ratio"], [
            ["step", step], ["step without reduction", alone], ["exposed communication", exposed_ratio(seen)]])
    return text


def report(results, failures, args):
    versions = {"Pliant": rounds.first_line([args.pliant, "--version"]), "PyTorch": rounds.package("python3-torch"),
                "Gloo": rounds.package("libgloo0")}
    parts = [rounds.report_head("Training steps beside DDP", versions),
             f"{RANKS} processes, threads per process: {args.threads}, {args.rounds} rounds in turn. A step's time is "
             "the maximum over ranks; a figure is the median over rounds of that round's p50, with the lowest and "
             "highest round. Exposed is the step's time less that of the same replicas side by side without reduction. "
             "A ratio below 1: Pliant is faster. How it is measured: `bench/train/README.md`."]
    parts += [summary(model, seen, args) for model, seen in results.items()]
    return "\n\n".join(part for part in parts + [rounds.failures_text(failures)] if part) + "\n"


def parse():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", type=rounds.listed(str), default=list(MODELS), help="default cnn,resnet,mlp")
    parser.add_argument("--systems", type=rounds.listed(str), default=SYSTEMS, help="default pliant,ddp")
    parser.add_argument("--rounds", type=int, help="default 5")
    parser.add_argument("--batch", type=int, help="per process; default by model")
    parser.add_argument("--steps", type=int, help="default by model")
    parser.add_argument("--warmup", type=int, help="default by model")
    parser.add_argument("--threads", type=int, default=1, help="per process")
    parser.add_argument("--quick", action="store_true", help="one round of 10 steps: does everything run?")
    parser.add_argument("--out", type=pathlib.Path, help="write the result as Markdown")
    parser.add_argument("--json", action="store_true", help="print each run's JSON line instead of the tables")
    parser.add_argument("--pliant", default="build/dev/apps/pliant/pliant")
    parser.add_argument("--trainer", default="build/dev/bench/train/pliant_train")
    parser.add_argument("--output", default="quiet", help="of pliant run")
    parser.add_argument("--pliant-args", type=str.split, default=[], help="more options for pliant_train")
    parser.add_argument("--ddp-args", type=str.split, default=[], help="more options for ddp_gloo.py")
    parser.add_argument("--timeout", type=float, default=600, help="seconds for one run")
    args = parser.parse_args()
    unknown = (set(args.models) - MODELS.keys()) | (set(args.systems) - set(SYSTEMS))
    if unknown:
        parser.error(f"unknown: {', '.join(sorted(unknown))}")
    args.rounds = args.rounds or (1 if args.quick else 5)
    given = (args.batch, args.steps or (10 if args.quick else None), args.warmup or (2 if args.quick else None))
    args.sizes = {model: tuple(mine or theirs for mine, theirs in zip(given, MODELS[model])) for model in args.models}
    return args


def main():
    args = parse()

    def measure():
        with tempfile.TemporaryDirectory() as folder:
            results, failures = sweep(args, pathlib.Path(folder))
        return report(results, failures, args), failures
    return rounds.drive(args, measure)


if __name__ == "__main__":
    sys.exit(main())
