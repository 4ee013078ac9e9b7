#!/usr/bin/env python3
"""What monitors cost: in every run each second step is measured, and compared with its neighbours. See README.md."""

import argparse
import pathlib
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import rounds

# model: batch per process, steps
MODELS = {"cnn": (64, 400), "mlp": (32, 120)}
KINDS = {"nothing": (0, 0), "noise scale": (2, 0), "variance by tensor": (0, 2)}
BARS = {"noise scale": 1.01, "variance by tensor": 1.02}


def measure(model, kind, args, folder):
    batch, steps = MODELS[model]
    noise, variance = KINDS[kind]
    answer = folder / "answer.json"
    answer.unlink(missing_ok=True)
    rounds.run([args.pliant, "run", "-n", 2, "--threads", 1, "--output", "quiet", "--status", "off", "--", args.trainer,
                "--model", model, "--batch", batch, "--steps", steps // (10 if args.quick else 1), "--warmup", 10,
                "--noise", noise, "--variance", variance, "--split", 2, "--json-file", answer], 600)
    result = rounds.last_json(answer.read_text())
    return result["due_ms"], result["others_ms"]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--models", type=rounds.listed(str), default=list(MODELS))
    parser.add_argument("--quick", action="store_true", help="one short round: does everything run?")
    parser.add_argument("--out", type=pathlib.Path, help="write the result as Markdown")
    parser.add_argument("--pliant", default="build/dev/apps/pliant/pliant")
    parser.add_argument("--trainer", default="build/dev/bench/train/pliant_train")
    args = parser.parse_args()
    rounds.stop_cleanly_on_sigterm()
    turns = 1 if args.quick else args.rounds
    progress = rounds.Progress(turns * len(args.models) * len(KINDS))
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        seen = {}
        for turn in range(turns):
            for model in args.models:
                for kind in rounds.in_turn(list(KINDS), turn):
                    due, others = measure(model, kind, args, pathlib.Path(folder))
                    seen.setdefault((model, kind), []).append((due, others))
                    progress.line(f"{model}, {kind}: {due / others:.4f}")
    for (model, kind), values in seen.items():
        ratios = rounds.spread([due / others for due, others in values])
        step = rounds.spread([others for _, others in values])
        bar = BARS.get(kind)
        rows.append([model, kind, f"{step[0]:.1f}", f"{ratios[0]:.4f} ({ratios[1]:.4f}–{ratios[2]:.4f})",
                     f"≤ {bar}" if bar else "–", ("yes" if ratios[0] <= bar else "NO") if bar else "–"])
    versions = {"Pliant": rounds.first_line([args.pliant, "--version"])}
    text = "\n\n".join([
        rounds.report_head("What monitors cost", versions),
        f"2 workers of one thread, {turns} rounds in turn. Every second step is measured; its p50 over that of the steps "
        "between, which measure nothing: the median over rounds, with the lowest and highest. `nothing` is the same "
        "comparison where no step measures: the error of the method. `mlp` has 25 million parameters (100 MB of gradients).",
        rounds.table(["model", "measured", "step, ms", "ratio", "bar", "met"], rows)]) + "\n"
    if args.out:
        args.out.write_text(text)
    print(text)


if __name__ == "__main__":
    try:
        main()
    except rounds.Failure as problem:
        sys.exit(f"overhead.py: {problem}")
    except KeyboardInterrupt:
        sys.exit(130)
