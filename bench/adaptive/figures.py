#!/usr/bin/env python3
"""Trains, and draws what adaptation does to learning. See README.md."""

import argparse
import concurrent.futures
import math
import pathlib
import sys

import chart
import runs
from runs import rounds


def over_seeds(options, make):
    """make(seed) for each seed, with progress."""
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as jobs:
        done = list(jobs.map(make, range(1, options.seeds + 1)))
    print("  accuracy, %:", ", ".join(f"{run.accuracies[-1]:.2f}" for run in done), file=sys.stderr, flush=True)
    return done


def band(many, xs_of, ys_of, every=1):
    """The mean over runs and its extremes, point by point, as far as all of them go."""
    length = min(len(ys_of(run)) for run in many)
    index = range(0, length, every)
    columns = [[ys_of(run)[i] for run in many] for i in index]
    return ([xs_of(many[0])[i] for i in index], [sum(column) / len(column) for column in columns],
            [min(column) for column in columns], [max(column) for column in columns])


def pm(values):
    mean, deviation = runs.mean_and_deviation(values)
    return f"{mean:.4g} ± {deviation:.2g}"


def table(header, rows):
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows]) + "\n"


def dynamic_sgd(options):
    """A batch of 64 becomes 768 in mid-training, by a resize from 1 worker to 4."""
    at, epochs, before, after = (300, 8, 100, 120) if options.quick else (1000, 12, 100, 200)
    series, rows = {}, []
    ways = {"static": ["--mode", "compensated"], "compensated": ["--at", at, "--mode", "compensated"],
            "instant": ["--at", at, "--mode", "instant"]}
    whens = []
    for name, flags in ways.items():
        print(name, file=sys.stderr)
        many = over_seeds(options, lambda seed: runs.train(
            "dynamic_sgd", [*flags, "--epochs", epochs, "--lr", options.lr,
                            *(["--limit", 20000] if options.quick else [])], workers=1, most=4, seed=seed))
        spikes, windows = [], []
        for number, run in enumerate(many):
            when = next((step for step, batch in enumerate(run.batches) if batch > 64), None)
            if name == "static":  # the same place in a run in which nothing happens
                when = at + 1000 if not options.quick else at + 400
            elif when is None or when + after > len(run.losses):
                raise rounds.Failure(f"{name}, seed {number + 1}: the batch did not grow in time")
            whens.append(when)
            curve = runs.smooth_by_samples(run.losses, run.batches, 768)
            usual = sum(run.losses[when - before:when]) / before
            spikes.append(max(curve[when + 1:when + after]) - usual)
            windows.append([curve[when + step] - usual for step in range(-before, after)])
        rows.append([name, pm(spikes), f"{min(spikes):.3g} – {max(spikes):.3g}", pm([run.accuracies[-1] for run in many]),
                     str(sorted({size for run in many for size in run.sizes}))])
        columns = list(zip(*windows))
        series[name] = (list(range(-before, after)), [sum(column) / len(column) for column in columns],
                        [min(column) for column in columns], [max(column) for column in columns])
    svg = chart.chart("A batch of 64 becomes 768 in mid-training", "steps after the change",
                      "training loss over the mean before", series, marks=[(0, "64 → 768")])
    return svg, table(["rate", "loss spike", "range", "final accuracy, %", "workers"], rows)


def adascale(options):
    """Loss over scale-invariant steps at 1, 4 and 16 times the batch."""
    steps = 300 if options.quick else 2000
    series, rows = {}, []
    for scale in (1, 4, 16):
        print(f"S = {scale}", file=sys.stderr)
        many = over_seeds(options, lambda seed: runs.train(
            "adascale", ["--base", 32, "--global-batch", 32 * scale, "--steps", steps, "--lr", options.lr],
            workers=2, seed=seed))
        curves = []
        for run in many:
            at, xs = 0.0, []
            for rate, batch in zip(run.rates, run.batches):
                xs.append(at)
                at += gain_of(rate, at / steps, options.lr)
            curves.append((xs, runs.smooth(run.losses, 16)))
        grid = [steps * i / 60 for i in range(2, 60)]
        sampled = [[value_at(xs, ys, x) for x in grid] for xs, ys in curves]
        means = [sum(column) / len(column) for column in zip(*sampled)]
        series[f"S = {scale}"] = (grid, means, [min(c) for c in zip(*sampled)], [max(c) for c in zip(*sampled)])
        rows.append([str(scale), pm([len(run.losses) for run in many]), pm([steps / len(run.losses) for run in many]),
                     pm([run.accuracies[-1] for run in many])])
    svg = chart.chart("AdaScale: equal progress at any batch", "scale-invariant step", "training loss", series)
    return svg, table(["S", "steps taken", "mean gain", "final accuracy, %"], rows)


def gain_of(rate, progress, base):
    """What the rate was multiplied by: the schedule is half a cosine."""
    scheduled = base * (1 + math.cos(math.pi * min(progress, 1))) / 2
    return rate / scheduled if scheduled > 1e-9 * base and rate == rate else 1.0


def value_at(xs, ys, x):
    for (x0, y0), (x1, y1) in zip(zip(xs, ys), zip(xs[1:], ys[1:])):
        if x0 <= x <= x1:
            return y0 + (y1 - y0) * (x - x0) / ((x1 - x0) or 1)
    return ys[-1]


def noise_policy(options):
    """KungFu's policy beside a small and a large batch that stay as they are."""
    epochs = 3 if options.quick else 12
    limit = ["--limit", 10000] if options.quick else []
    series, rows = {}, []
    for name, batch, policies in (("small: 32", 32, ()), ("large: 1024", 1024, ()), ("noise scale", 32, ("gns:max=512",))):
        print(name, file=sys.stderr)
        many = over_seeds(options, lambda seed: runs.train(
            "large_batch", ["--scaling", "none", "--warm-up", 0, "--batch", batch // 2, "--epochs", epochs,
                            "--lr", options.lr, *limit], workers=2, policies=policies, seed=seed))
        series[name] = band(many, lambda run: list(range(1, len(run.accuracies) + 1)), lambda run: run.accuracies)
        rows.append([name, pm([len(run.losses) for run in many]), pm([run.accuracies[-1] for run in many]),
                     pm([max(run.accuracies) for run in many]),
                     "/".join(str(batch) for batch in sorted({b for run in many for b in run.batches if b >= 32}))])
    svg = chart.chart("The noise-scale policy", "epoch", "test accuracy, %", series)
    return svg, table(["batch", "steps", "final accuracy, %", "best accuracy, %", "batches"], rows)


def scaling(options):
    """Convergence and speed at 1, 2 and 4 workers, with linear scaling and warm-up."""
    epochs = 2 if options.quick else 6
    series, rows, first = {}, [], None
    for workers in (1, 2, 4):
        print(f"{workers} workers", file=sys.stderr)
        many = over_seeds(options, lambda seed: runs.train(
            "large_batch", ["--model", "cnn", "--scaling", "linear", "--warm-up", 1, "--batch", 64, "--epochs", epochs,
                            "--lr", options.lr, *(["--limit", 4000] if options.quick else [])],
            workers=workers, seed=seed))
        name = f"{workers} worker" + ("s" if workers > 1 else "")
        series[name] = band(many, lambda run: list(range(1, len(run.accuracies) + 1)), lambda run: run.accuracies)
        speeds = [sum(run.batches) / run.seconds for run in many]
        first = first or sum(speeds) / len(speeds)
        rows.append([str(workers), str(64 * workers), pm([len(run.losses) for run in many]), pm(speeds),
                     f"{sum(speeds) / len(speeds) / first:.2f}", pm([run.accuracies[-1] for run in many])])
    svg = chart.chart("1, 2 and 4 workers: linear scaling with warm-up", "epoch", "test accuracy, %", series)
    note = f"On {rounds.CORES} cores, one thread per worker, {options.jobs} jobs at a time; evaluation counts.\n"
    return svg, table(["workers", "batch", "steps", "samples/s", "speed-up", "final accuracy, %"], rows) + "\n" + note


FIGURES = {"dynamic-sgd": (dynamic_sgd, 0.02, 5), "adascale": (adascale, 0.05, 3), "noise-policy": (noise_policy, 0.05, 3),
           "scaling": (scaling, 0.02, 3)}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("figure", choices=[*FIGURES, "all"])
    parser.add_argument("--quick", action="store_true", help="few samples and steps: does everything run?")
    parser.add_argument("--seeds", type=int, help="runs of each kind; default 5 or 3")
    parser.add_argument("--lr", type=float, help="learning rate; each figure has its own default")
    parser.add_argument("--jobs", type=int, default=1, help="runs at a time")
    parser.add_argument("--data", default=runs.DATA, help="folder with Fashion-MNIST's IDX files")
    parser.add_argument("--build", type=pathlib.Path, default=runs.BUILD, help="where the programs are")
    parser.add_argument("--out", type=pathlib.Path, help="write NAME.svg and NAME.md into this folder")
    chosen = parser.parse_args()
    rounds.stop_cleanly_on_sigterm()
    runs.DATA, runs.BUILD = chosen.data, chosen.build.resolve()
    for name in FIGURES if chosen.figure == "all" else [chosen.figure]:
        make, rate, seeds = FIGURES[name]
        options = argparse.Namespace(quick=chosen.quick, jobs=chosen.jobs, lr=chosen.lr or rate,
                                     seeds=chosen.seeds or (1 if chosen.quick else seeds))
        svg, text = make(options)
        command = f"python3 bench/adaptive/figures.py {name} --seeds {options.seeds} --lr {options.lr:g}"
        page = (f"# {make.__doc__.strip().rstrip('.')}\n\nThe network of `examples/common` on Fashion-MNIST, {options.seeds} seed{'s' if options.seeds > 1 else ''}; "
                f"mean ± standard deviation, the band in the figure is the lowest to the highest.\n\n![]({name}.svg)\n\n"
                f"{text}\n`{command}`\n")
        if chosen.out:
            chosen.out.mkdir(parents=True, exist_ok=True)
            (chosen.out / f"{name}.svg").write_text(svg)
            (chosen.out / f"{name}.md").write_text(page)
        print(page)


if __name__ == "__main__":
    try:
        main()
    except rounds.Failure as problem:
        sys.exit(f"figures.py: {problem}")
    except KeyboardInterrupt:
        sys.exit(130)
