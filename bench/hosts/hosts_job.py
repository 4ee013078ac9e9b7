"""A Pliant job whose hosts are network namespaces, under observation."""

import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent), str(HERE.parent / "elastic")]
import space  # noqa: E402  (found through the line above)
from job import Job  # noqa: E402
from processes import Undisturbed, rounds  # noqa: E402


def environment_of(pid):
    try:
        text = pathlib.Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return {}  # it has ended
    return dict(entry.split("=", 1) for entry in text.decode(errors="replace").split("\0") if "=" in entry)


def parent_of(pid):
    try:
        return int(pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return None


class HostsJob(Job):
    """A job on `hosts` with so many `slots` on the first of them; `pliant run` itself is at the switch, which stays, or
    on the first host."""

    def __init__(self, args, hosts, slots, folder, epochs, seed=42, environment=None, options=(), at_switch=True,
                 command=None):
        self.hosts = hosts
        head, address = ((hosts.switch, hosts.switch_address) if at_switch else (hosts.names[0], hosts.addresses[0]))
        where = ",".join(f"{name}:{count}" for name, count in zip(hosts.names, slots))
        super().__init__(args, folder, sum(slots), epochs, seed, environment,
                         options=["-H", where, "--via", "ip netns exec {host}", "--address", address, "--interface",
                                  "eth0", *options],
                         via=["ip", "netns", "exec", head], command=command)

    def running(self):
        """{worker: (pid, host)}. Who has started a worker is of no interest: its environment says which one it is."""
        seen = {}
        for host in self.hosts.names:
            for pid in space.dwellers(host):
                about = environment_of(pid)
                if about.get("PLIANT_JOB") == self.name and "PLIANT_WORKER" in about:
                    seen[pid] = int(about["PLIANT_WORKER"]), host
        # A worker's children inherit its environment.
        return {worker: (pid, host) for pid, (worker, host) in seen.items()
                if seen.get(parent_of(pid), (None,))[0] != worker}

    def pids(self):
        return {worker: pid for worker, (pid, _) in self.running().items()}

    def places(self, members):
        """{host: its members}"""
        running = self.running()
        missing = [worker for worker in members if worker not in running]
        if missing:
            raise rounds.Failure(f"no process of worker {missing[0]} is found")
        found = {}
        for worker in members:
            found.setdefault(running[worker][1], []).append(worker)
        return found

    def __exit__(self, *what):
        super().__exit__(*what)
        with Undisturbed():
            for name in self.hosts.names:
                space.kill_dwellers(name)
                self.hosts.mend(name)
