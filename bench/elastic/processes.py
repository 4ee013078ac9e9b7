"""Processes by their ids: waiting with a limit, and ending what a run has started without ever hitting a stranger."""

import os
import pathlib
import signal
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
import rounds  # noqa: E402  (found through the line above)
from rounds import Undisturbed  # noqa: E402, F401  (whoever ends processes needs it)

TICK = 0.05  # the cores belong to the workers: nothing here looks more often


def wait_for(what, seconds, condition):
    """Its first answer that is true."""
    end = time.monotonic() + seconds
    while True:
        found = condition()
        if found:
            return found
        if time.monotonic() > end:
            raise rounds.Failure(f"{what}: not within {seconds:.0f} s")
        time.sleep(TICK)


def born(pid):
    """Ticks of the clock from the machine's start to the process's; None if it is gone or a zombie. A process is its
    id together with this: ids come again."""
    try:
        fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else int(fields[19])


def started_at(pid):
    """Unix seconds, to a hundredth."""
    ticks = born(pid)
    if ticks is None:
        raise rounds.Failure(f"process {pid} is gone")
    age = time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
    return time.time() - age


class Known:
    """The processes that a run has seen. Whatever still lives at its end is killed."""

    def __init__(self):
        self.births = {}

    def add(self, pid):
        if pid and pid not in self.births and born(pid) is not None:
            self.births[pid] = born(pid)

    def alive(self):
        return [pid for pid, birth in self.births.items() if birth is not None and born(pid) == birth]

    def kill_rest(self):
        for pid in self.alive():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass


def last_line(path):
    lines = path.read_text(errors="replace").split("\n") if path.exists() else []
    return next((line.strip() for line in reversed(lines) if line.strip()), "no word why")
