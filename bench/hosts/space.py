"""Hosts on one machine: network namespaces that are cabled to a switch, which is one more. Needs root.

Nothing outside of these namespaces is touched, and nothing of them is left afterwards.
"""

import contextlib
import os
import signal
import subprocess
import sys
import pathlib

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import rounds  # noqa: E402  (found through the line above)

NET = "10.77.0"


def sh(*words):
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True)
    if done.returncode != 0:
        raise rounds.Failure(f"{' '.join(map(str, words))}: {done.stderr.strip() or done.returncode}")


def dwellers(name):
    """Ids of all processes in a namespace."""
    def is_in(pid, place):
        try:
            return os.stat(f"/proc/{pid}/ns/net").st_ino == place
        except OSError:
            return False  # it has ended
    place = os.stat(f"/run/netns/{name}").st_ino
    return [int(pid) for pid in os.listdir("/proc") if pid.isdigit() and is_in(pid, place)]


def kill_dwellers(name):
    for pid in dwellers(name):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


class Hosts:
    """`count` hosts, each with one cable of `mbit` per second in both directions (0: as fast as the machine is)."""

    def __init__(self, count, mbit=0):
        self.prefix = f"pl{os.getpid()}"
        self.names = [f"{self.prefix}h{at}" for at in range(count)]
        self.addresses = [f"{NET}.{at + 1}" for at in range(count)]
        self.switch, self.switch_address = f"{self.prefix}sw", f"{NET}.254"
        self.mbit = mbit

    def __enter__(self):
        try:
            self._cable()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        with rounds.Undisturbed():
            for name in [*self.names, self.switch]:
                with contextlib.suppress(rounds.Failure, OSError):
                    kill_dwellers(name)
                    sh("ip", "netns", "del", name)

    def _cable(self):
        sh("ip", "netns", "add", self.switch)
        self.inside(self.switch, "ip", "link", "add", "br0", "type", "bridge")
        self.inside(self.switch, "ip", "addr", "add", f"{self.switch_address}/24", "dev", "br0")
        for device in ("lo", "br0"):
            self.inside(self.switch, "ip", "link", "set", device, "up")
        for name, address in zip(self.names, self.addresses):
            port = self.port(name)
            sh("ip", "netns", "add", name)
            self.inside(self.switch, "ip", "link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", name)
            self.inside(self.switch, "ip", "link", "set", port, "master", "br0", "up")
            self.inside(name, "ip", "addr", "add", f"{address}/24", "dev", "eth0")
            for device in ("lo", "eth0"):
                self.inside(name, "ip", "link", "set", device, "up")
            if self.mbit:
                for space, device in ((name, "eth0"), (self.switch, port)):
                    self.inside(space, "tc", "qdisc", "add", "dev", device, "root", "tbf", "rate", f"{self.mbit}mbit",
                                "burst", "256kb", "latency", "100ms")

    def port(self, name):
        """The switch's end of a host's cable."""
        return f"port{self.names.index(name)}"

    def cut(self, name):
        sh("ip", "-n", self.switch, "link", "set", self.port(name), "down")

    def mend(self, name):
        sh("ip", "-n", self.switch, "link", "set", self.port(name), "up")

    @staticmethod
    def inside(name, *words):
        sh("ip", "netns", "exec", name, *words)
