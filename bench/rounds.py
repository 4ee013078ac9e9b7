"""What the drivers in bench/ share: running contenders in turn, and writing down what came out."""

import datetime
import json
import os
import pathlib
import platform
import shlex
import signal
import statistics
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
CORES = len(os.sched_getaffinity(0))


class Failure(Exception):
    """A contender that did not give a result. It is reported, never skipped."""


def parse_size(text):
    units = {"Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30}
    return int(text[:-2]) * units[text[-2:]] if text[-2:] in units else int(text)


def size_text(size):
    for unit, shift in (("Gi", 30), ("Mi", 20), ("Ki", 10)):
        if size >= 1 << shift and size % (1 << shift) == 0:
            return f"{size >> shift} {unit}B"
    return f"{size} B"


def ms_text(ms):
    return f"{ms * 1e3:.2f} µs" if ms < 0.1 else f"{ms:.3g} ms" if ms < 100 else f"{ms:.0f} ms"


def listed(convert):
    """For argparse: a,b,c."""
    return lambda text: [convert(part) for part in text.split(",") if part]


def stop_cleanly_on_sigterm():
    def stop(*_):
        raise KeyboardInterrupt
    signal.signal(signal.SIGTERM, stop)


class Undisturbed:
    """A second Ctrl-C must not interrupt the clearing up after the first."""

    def __enter__(self):
        self.before = {name: signal.signal(name, signal.SIG_IGN) for name in (signal.SIGINT, signal.SIGTERM)}

    def __exit__(self, *_):
        for name, handler in self.before.items():
            signal.signal(name, handler)


def stop(process):
    """Ends a process and its group."""
    with Undisturbed():
        # Launchers pass SIGTERM on to ranks that sit in process groups of their own; SIGKILL would orphan those.
        for sent in (signal.SIGTERM, signal.SIGKILL):
            try:
                os.killpg(process.pid, sent)
                process.wait(5)
                break
            except ProcessLookupError:
                break
            except subprocess.TimeoutExpired:
                continue


def run(argv, timeout, environment=None):
    """Runs a contender to its end and returns its stdout. Its children end with it, also on Ctrl-C."""
    argv = [str(part) for part in argv]
    try:
        process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                   text=True, cwd=ROOT, env={**os.environ, **(environment or {})},
                                   start_new_session=True)
    except OSError as error:
        raise Failure(f"{argv[0]}: {error.strerror}") from None
    try:
        out, err = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        stop(process)
        raise Failure(f"no end within {timeout:.0f} s") from None
    except BaseException:
        stop(process)
        raise
    if process.returncode != 0:
        last = (err.strip() or out.strip() or "no output").splitlines()[-1]
        raise Failure(f"status {process.returncode}: {last}")
    return out


def last_json(text):
    for line in reversed(text.splitlines()):
        try:
            value = json.loads(line)
        except ValueError:
            continue
        if isinstance(value, dict):
            return value
    raise Failure("no JSON line in its output")


def in_turn(names, turn):
    """Each round starts with another contender, so that none always follows the same one."""
    shift = turn % len(names)
    return names[shift:] + names[:shift]


class Progress:
    def __init__(self, total):
        self.total, self.done, self.began = total, 0, time.monotonic()

    def line(self, text):
        self.done += 1
        spent = time.monotonic() - self.began
        left = spent / self.done * (self.total - self.done)
        print(f"[{self.done}/{self.total}, {left:.0f} s left] {text}", file=sys.stderr, flush=True)


def spread(values):
    """median, min, max; None where there is nothing."""
    return (statistics.median(values), min(values), max(values)) if values else None


def ratios(above, below):
    """Round by round, over the rounds in which both gave a value: {round: value} each."""
    return [above[turn] / below[turn] for turn in sorted(above.keys() & below.keys()) if below[turn] > 0]


def ratio_text(values):
    seen = spread(values)
    return f"{seen[0]:.2f} ({seen[1]:.2f}–{seen[2]:.2f})" if seen else "–"


def table(head, rows):
    """A Markdown table that also reads well on a terminal."""
    width = [max(len(row[i]) for row in [head, *rows]) for i in range(len(head))]
    shown = [[cell.ljust(width[i]) if i == 0 else cell.rjust(width[i]) for i, cell in enumerate(row)]
             for row in [head, *rows]]
    rule = ["-" * width[0]] + ["-" * (w - 1) + ":" for w in width[1:]]
    return "\n".join("| " + " | ".join(row) + " |" for row in [shown[0], rule, *shown[1:]])


def first_line(argv):
    try:
        out = subprocess.run(argv, capture_output=True, text=True, cwd=ROOT, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return out.strip().splitlines()[0] if out.strip() else "unknown"


def package(name):
    return first_line(["dpkg-query", "-W", "-f", "${Version}", name])


def source_state():
    changed = first_line(["git", "diff", "--stat", "HEAD"]) != "unknown"
    return first_line(["git", "describe", "--always"]) + (" with local changes" if changed else "")


def machine():
    model, cache = "unknown CPU", "?"
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            model = line.split(":", 1)[1].strip()
            break
    for level in pathlib.Path("/sys/devices/system/cpu/cpu0/cache").glob("index3/size"):
        cache = level.read_text().strip()
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return f"{model}, {CORES} cores, L3 {cache}, {memory:.0f} GiB, Linux {platform.release()}"


def report_head(title, versions):
    """The lines without which a table of figures says nothing."""
    now = datetime.datetime.now(datetime.timezone.utc)
    load = os.getloadavg()[0]
    lines = [f"# {title}", "",
             f"- command: `{shlex.join(['python3', os.path.relpath(sys.argv[0], ROOT), *sys.argv[1:]])}`",
             f"- date: {now:%Y-%m-%d %H:%M} UTC",
             f"- machine: {machine()}",
             f"- load average at the end: {load:.1f}",
             f"- source: {source_state()}"]
    return "\n".join(lines + [f"- {name}: {version}" for name, version in versions.items()])


def failures_text(failures):
    """One line per contender and reason; failures are (contender, where, why)."""
    places = {}
    for contender, where, why in failures:
        places.setdefault((contender, why), []).append(where)
    lines = [f"- {contender}, {len(where)} runs, first in {where[0]}: {why}"
             for (contender, why), where in places.items()]
    return "\n".join(["## Failures", "", *lines]) if lines else ""


def drive(args, measure):
    """A driver's main: `measure()` gives its report and its failures. Ctrl-C and SIGTERM end it cleanly."""
    stop_cleanly_on_sigterm()
    try:
        text, failures = measure()
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    except Failure as failure:
        print(failure, file=sys.stderr)
        return 1
    if not args.json:
        print(text)
    if args.out:
        args.out.parent.mkdir(parents=True, exist_ok=True)
        args.out.write_text(text)
        print(f"wrote {args.out}", file=sys.stderr)
    return 1 if failures else 0
