#!/usr/bin/env python3
"""Trains, and draws what adaptation does to learning. See README.md."""

import argparse
import bisect
import concurrent.futures
import math
import pathlib
import statistics
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


def within(some, others):
    """Are two means as near as the spread of one of them allows?"""
    deviation = max(statistics.stdev(some), statistics.stdev(others))
    return abs(statistics.mean(some) - statistics.mean(others)) <= 2 * deviation


def pm(values):
    mean, deviation = runs.mean_and_deviation(values)
    return f"{mean:.4g} ± {deviation:.2g}"


def dynamic_sgd(options):
    """A batch of 64 becomes 768 in mid-training, by a resize from 1 worker to 4

    SGD with momentum 0.9 and a rate that falls along half a cosine. After 1000 steps at a batch of 64 the job asks for four
    workers, and when they are there, for a batch of 768. `static`: nothing of that happens. `compensated`: Dynamic SGD's ramp
    of the rate. `instant`: the rate is multiplied together with the batch. Losses are means over 768 samples, so that their
    noise does not depend on the batch. The spike is the largest of the 200 steps after the change, over the mean of the 100
    before it; in `static`, around step 2000.
    """
    at, epochs, before, after = (300, 8, 100, 120) if options.quick else (1000, 12, 100, 200)
    series, rows = {}, []
    ways = {"static": ["--mode", "compensated"], "compensated": ["--at", at, "--mode", "compensated"],
            "instant": ["--at", at, "--mode", "instant"]}
    # In short, the others are there from the start and wait: the run does not last until new ones have come.
    begin = {"workers": 4, "policies": (f"schedule:1x{at},4x1000000",)} if options.quick else {"workers": 1, "most": 4}
    heights, finals = [], []
    for name, flags in ways.items():
        print(name, file=sys.stderr)
        many = over_seeds(options, lambda seed: runs.train(
            "dynamic_sgd", [*flags, "--epochs", epochs, "--lr", options.lr,
                            *(["--limit", 20000] if options.quick else [])], seed=seed,
            **({"workers": 1} if name == "static" else begin)))
        spikes, windows = [], []
        for number, run in enumerate(many):
            when = next((step for step, batch in enumerate(run.batches) if batch > 64), None)
            if name == "static":  # the same place in a run in which nothing happens
                when = at + 1000 if not options.quick else at + 400
            elif when is None or when + after > len(run.losses):
                raise rounds.Failure(f"{name}, seed {number + 1}: the batch did not grow in time")
            curve = runs.smooth_by_samples(run.losses, run.batches, 768)
            usual = sum(run.losses[when - before:when]) / before
            spikes.append(max(curve[when + 1:when + after]) - usual)
            windows.append([curve[when + step] - usual for step in range(-before, after)])
        rows.append([name, pm(spikes), f"{min(spikes):.3g} – {max(spikes):.3g}", pm([run.accuracies[-1] for run in many]),
                     str(sorted({size for run in many for size in run.sizes}))])
        heights.append(spikes)
        finals.append([run.accuracies[-1] for run in many])
        columns = list(zip(*windows))
        series[name] = (list(range(-before, after)), [sum(column) / len(column) for column in columns],
                        [min(column) for column in columns], [max(column) for column in columns])
    svg = chart.chart("A batch of 64 becomes 768 in mid-training", "steps after the change",
                      "training loss over the mean before", series, marks=[(0, "64 → 768")])
    static, compensated, instant = (statistics.mean(values) for values in heights)
    claims = [("instant scaling makes a larger spike than compensation", instant > compensated)]
    if not options.quick:
        claims += [("compensation makes no smaller one than nothing at all", compensated >= static),
                   ("its final accuracy is within two deviations of static's", within(finals[1], finals[0]))]
    return svg, rounds.table(["rate", "loss spike", "range", "final accuracy, %", "workers"], rows), claims


def adascale(options):
    """AdaScale: loss over scale-invariant steps at 1, 4 and 16 times the batch

    Two workers, a base batch of 32, SGD with momentum 0.9, a rate that falls along half a cosine of scale-invariant steps.
    """
    steps = 300 if options.quick else 2000
    grid = [steps * i / 40 for i in range(1, 40)]
    series, rows, claims, spreads, first = {}, [], [], [], None
    for scale in (1, 4, 16):
        print(f"S = {scale}", file=sys.stderr)
        many = over_seeds(options, lambda seed: runs.train(
            "adascale", ["--base", 32, "--global-batch", 32 * scale, "--steps", steps, "--lr", options.lr],
            workers=2, seed=seed))
        curves = []
        for run in many:
            at, xs = 0.0, []
            for rate in run.rates:
                xs.append(at)
                at += gain_of(rate, at / steps, options.lr)
            curves.append([mean_around(xs, run.losses, x, steps / 40) for x in grid])
        columns = list(zip(*curves))
        means = [statistics.mean(column) for column in columns]
        series[f"S = {scale}"] = (grid, means, [min(column) for column in columns], [max(column) for column in columns])
        first = first or means
        away = statistics.mean(abs(mean - base) for mean, base in zip(means, first))
        noise = statistics.mean(statistics.stdev(column) if len(column) > 1 else 0 for column in columns)
        spreads.append(noise)
        if scale > 1:
            limit = 0.1 if options.quick else 2 * max(spreads)
            claims.append((f"the curve of S = {scale} lies on that of S = 1, within {limit:.3f}", away <= limit))
        rows.append([str(scale), pm([len(run.losses) for run in many]), pm([steps / len(run.losses) for run in many]),
                     f"{away:.4f}", f"{noise:.4f}", pm([run.accuracies[-1] for run in many])])
    svg = chart.chart("AdaScale: equal progress at any batch", "scale-invariant step",
                      "training loss (mean over a fortieth of the run either side)", series)
    return svg, rounds.table(["S", "steps taken", "mean gain", "distance from the curve of S = 1, mean",
                       "deviation between seeds", "final accuracy, %"], rows), claims


def gain_of(rate, progress, base):
    """What the rate was multiplied by: the schedule is half a cosine."""
    scheduled = base * (1 + math.cos(math.pi * min(progress, 1))) / 2
    return rate / scheduled if scheduled > 1e-9 * base and rate == rate else 1.0


def mean_around(xs, ys, x, width):
    """Of the values whose x is at most `width` away."""
    near = ys[bisect.bisect_left(xs, x - width):bisect.bisect_right(xs, x + width)]
    return statistics.mean(near) if near else math.nan


def noise_policy(options):
    """KungFu's noise-scale policy beside a small and a large batch that stay as they are

    Two workers, SGD with momentum 0.9, the same constant rate for all. The policy (`--policy gns:max=512`) begins with the
    small batch and doubles it after each epoch in which the noise scale has grown.
    """
    epochs = 3 if options.quick else 12
    limit = ["--limit", 10000] if options.quick else []
    series, rows, steps, finals, goal = {}, [], [], [], None
    for name, batch, policies in (("small: 32", 32, ()), ("large: 1024", 1024, ()), ("noise scale", 32, ("gns:max=512",))):
        print(name, file=sys.stderr)
        many = over_seeds(options, lambda seed: runs.train(
            "large_batch", ["--scaling", "none", "--decay", "none", "--warm-up", 0, "--batch", batch // 2, "--epochs",
                            epochs, "--lr", options.lr, *limit], workers=2, policies=policies, seed=seed))
        series[name] = band(many, lambda run: list(range(1, len(run.accuracies) + 1)), lambda run: run.accuracies)
        goal = goal or statistics.mean(run.accuracies[-1] for run in many)
        reached = [next((end for end, accuracy in zip(run.ends, run.accuracies) if accuracy >= goal), None)
                   for run in many]
        rows.append([name, pm([len(run.losses) for run in many]), pm([run.accuracies[-1] for run in many]),
                     pm([max(run.accuracies) for run in many]),
                     ", ".join("never" if end is None else str(end) for end in reached),
                     " ".join(str(batch) for batch in sorted({b for run in many for b in run.batches if b >= 32 and b & (b - 1) == 0}))])
        steps.append(len(many[0].losses))
        finals.append([run.accuracies[-1] for run in many])
    svg = chart.chart("The noise-scale policy", "epoch", "test accuracy, %", series)
    claims = [("the policy takes fewer steps than the small batch", steps[2] < steps[0]),
              ("and ends better than the large one, with every seed", min(finals[2]) > max(finals[1]))]
    if not options.quick:
        claims.append(("it reaches the small batch's accuracy in fewer steps, with every seed",
                       all(end is not None and end < steps[0] for end in reached)))
    return svg, rounds.table(["batch", "steps", "final accuracy, %", "best accuracy, %",
                       f"steps to {goal:.2f} %, by seed", "batches"], rows), claims


def scaling(options):
    """Convergence at 1, 2 and 4 workers, with linear scaling and warm-up

    The CNN of `examples/common`, 64 samples per worker, SGD with momentum 0.9, a rate that grows with the batch over one
    epoch and falls along half a cosine.
    """
    epochs = 2 if options.quick else 3
    series, rows, finals = {}, [], []
    for workers in (1, 2, 4):
        print(f"{workers} workers", file=sys.stderr)
        many = over_seeds(options, lambda seed: runs.train(
            "large_batch", ["--model", "mlp" if options.quick else "cnn", "--scaling", "linear", "--warm-up", 1, "--batch", 64, "--epochs", epochs,
                            "--lr", options.lr, *(["--limit", 10000] if options.quick else [])],
            workers=workers, seed=seed))
        name = f"{workers} worker" + ("s" if workers > 1 else "")
        series[name] = band(many, lambda run: list(range(1, len(run.accuracies) + 1)), lambda run: run.accuracies)
        finals.append([run.accuracies[-1] for run in many])
        rows.append([str(workers), str(64 * workers), pm([len(run.losses) for run in many]), pm(finals[-1])])
    svg = chart.chart("1, 2 and 4 workers: linear scaling with warm-up", "epoch", "test accuracy, %", series)
    most = 5 if options.quick else 1
    claims = [(f"{workers} workers end within {most} % of one",
               abs(statistics.mean(finals[i]) - statistics.mean(finals[0])) <= most) for i, workers in ((1, 2), (2, 4))]
    return svg, rounds.table(["workers", "batch", "steps", "final accuracy, %"], rows), claims


def speed(options):
    """Samples per second at 1, 2 and 4 workers

    The CNN of `examples/common`, 64 samples and one thread per worker, nothing else running: as many samples per worker in
    every run, in turn, evaluation included; the middle of the rounds, the lowest and the highest.
    """
    share = 1000 if options.quick else 9000
    seen = {workers: [] for workers in (1, 2, 4)}
    for turn in range(options.seeds):
        for workers in rounds.in_turn(list(seen), turn):
            run = runs.train("large_batch", ["--model", "cnn", "--batch", 64, "--epochs", 1, "--limit", share * workers],
                             workers=workers, seed=turn + 1)
            seen[workers].append(sum(run.batches) / run.seconds)
            print(f"  {workers} workers: {seen[workers][-1]:.0f} samples/s", file=sys.stderr, flush=True)
    middles = {workers: rounds.spread(values) for workers, values in seen.items()}
    rows = [[str(workers), f"{middle:.0f} ({low:.0f}–{high:.0f})", f"{middle / middles[1][0]:.2f}"]
            for workers, (middle, low, high) in middles.items()]
    series = {"measured": (list(middles), *zip(*middles.values())),
              "as many times one worker's": (list(middles), [workers * middles[1][0] for workers in middles], None, None)}
    svg = chart.chart("Samples per second at 1, 2 and 4 workers", "workers", "samples/s", series)
    return svg, rounds.table(["workers", "samples/s", "speed-up"], rows), []


FIGURES = {"dynamic-sgd": (dynamic_sgd, 0.02, 5), "adascale": (adascale, 0.005, 5), "noise-policy": (noise_policy, 0.01, 3),
           "scaling": (scaling, 0.02, 3), "speed": (speed, 0.02, 3)}


def page_of(name, doc, text, claims, options):
    title, _, explanation = doc.strip().partition("\n\n")
    about = [f"- cores, runs at a time, seeds, rate: {rounds.CORES}, {options.jobs}, {options.seeds}, {options.lr:g}"]
    held = rounds.table(["what should hold", "does it"], [[claim, "yes" if held else "NO"] for claim, held in claims])
    versions = {"Pliant": rounds.first_line([runs.BUILD / "apps/pliant/pliant", "--version"])}
    return "\n\n".join([
        rounds.report_head(title, versions) + "\n" + "\n".join(about),
        " ".join(explanation.split()) + " Fashion-MNIST; mean ± standard deviation over seeds; the bands in the figure "
        "reach from the lowest to the highest.", f"![]({name}.svg)", text, *([held] if claims else [])]) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("figure", choices=[*FIGURES, "all"])
    parser.add_argument("--quick", action="store_true", help="few samples and steps: does everything run?")
    parser.add_argument("--seeds", type=int, help="runs of each kind; default 5 or 3")
    parser.add_argument("--lr", type=float, help="learning rate; each figure has its own default")
    parser.add_argument("--jobs", type=int, default=1, help="runs at a time")
    parser.add_argument("--data", default=runs.DATA, help="folder with Fashion-MNIST's IDX files")
    parser.add_argument("--build", type=pathlib.Path, default=runs.BUILD, help="where the programs are")
    parser.add_argument("--check", action="store_true", help="fail if a figure does not show what it should")
    parser.add_argument("--out", type=pathlib.Path, help="write NAME.svg and NAME.md into this folder")
    chosen = parser.parse_args()
    rounds.stop_cleanly_on_sigterm()
    if not (pathlib.Path(chosen.data) / "train-images-idx3-ubyte.gz").exists():
        print(f"figures.py: no Fashion-MNIST in {chosen.data}", file=sys.stderr)
        sys.exit(77)  # for ctest: left out
    runs.DATA, runs.BUILD = chosen.data, chosen.build.resolve()
    all_held = True
    for name in FIGURES if chosen.figure == "all" else [chosen.figure]:
        make, rate, seeds = FIGURES[name]
        options = argparse.Namespace(quick=chosen.quick, jobs=chosen.jobs, lr=chosen.lr or rate,
                                     seeds=chosen.seeds or ((seeds + 1) // 3 if chosen.quick else seeds))
        svg, text, claims = make(options)
        page = page_of(name, make.__doc__, text, claims, options)
        all_held = all_held and all(held for _, held in claims)
        if chosen.out:
            chosen.out.mkdir(parents=True, exist_ok=True)
            (chosen.out / f"{name}.svg").write_text(svg)
            (chosen.out / f"{name}.md").write_text(page)
        print(page)
    if chosen.check and not all_held:
        sys.exit("figures.py: not everything that should hold does")


if __name__ == "__main__":
    try:
        main()
    except rounds.Failure as problem:
        sys.exit(f"figures.py: {problem}")
    except KeyboardInterrupt:
        sys.exit(130)
