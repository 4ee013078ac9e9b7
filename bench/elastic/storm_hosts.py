"""Where a storm's job runs: on this machine, or on hosts that are network namespaces, with or without etcd."""

import contextlib
import os
import pathlib
import signal
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent), str(HERE.parent / "hosts")]
import rounds  # noqa: E402  (found through the line above)
import space  # noqa: E402
from processes import wait_for  # noqa: E402

PORT = 2379
# A store of one server has nobody to elect but itself; with etcd's defaults that takes it 1 to 2 s after a restart.
ALONE = "--heartbeat-interval 10 --election-timeout 100"
KINDS = ("kill,kill2,core-dump,term,resize,join-kill,switch-kill,sigstop,coordinator,coordinator-stop,agent,agent-stop,"
         "host,cut,one-way,slow")


class Here:
    """One host: this machine."""
    kinds = "default"
    via, run_flags, chaos_flags = [], [], []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass


class Spread:
    """`count` hosts with `slots` each, cabled to a switch where `pliant run`, `pliant chaos` and etcd are. A slow cable
    passes a tenth of `mbit` per second."""

    def __init__(self, count, slots, mbit, etcd, folder):
        if os.geteuid() != 0:
            raise rounds.Failure("--hosts needs root")
        self.hosts, self.slots, self.folder = space.Hosts(count, mbit), slots, folder
        self.kinds = KINDS + (",store" if etcd else "")
        self.etcd = etcd

    def __enter__(self):
        self.hosts.__enter__()
        try:
            self._prepare()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        if self.etcd:
            with contextlib.suppress(OSError, ValueError):
                os.kill(int((self.folder / "etcd.pid").read_text()), signal.SIGKILL)
        self.hosts.__exit__()

    def _prepare(self):
        hosts = self.hosts
        self.via = ["ip", "netns", "exec", hosts.switch]
        where = ",".join(f"{name}:{self.slots}" for name in hosts.names)
        self.run_flags = ["-H", where, "--via", "ip netns exec {host}", "--address", hosts.switch_address,
                          "--interface", "eth0"]
        self.chaos_flags = ["--slow-rate", f"{hosts.mbit / 10:g}mbit"]
        for name in hosts.names:
            self.chaos_flags += ["--link", f"{name}={hosts.switch}/{hosts.port(name)}@{hosts.mbit}mbit"]
        if self.etcd:
            self._start_etcd()
            self.run_flags += ["--store", f"etcd://{hosts.switch_address}:{PORT}"]

    def _start_etcd(self):
        url, script = f"http://{self.hosts.switch_address}:{PORT}", self.folder / "etcd.sh"
        script.write_text(f"""cd {self.folder}
setsid ip netns exec {self.hosts.switch} etcd --data-dir etcd --listen-client-urls {url} --advertise-client-urls {url} \\
  --listen-peer-urls http://127.0.0.1:0 {ALONE} --logger=zap --log-outputs=stderr </dev/null >>etcd.err 2>&1 &
echo $! >etcd.pid
""")
        subprocess.run(["/bin/sh", script], check=True)
        ask = [*self.via, sys.executable, "-c", f"import urllib.request; urllib.request.urlopen('{url}/health', timeout=2)"]
        wait_for("etcd", 30, lambda: subprocess.run(ask, capture_output=True).returncode == 0)
        self.chaos_flags += ["--store-pid", self.folder / "etcd.pid", "--store-restart", f"sh {script}"]
