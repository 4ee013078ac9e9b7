"""A Pliant job under observation: its records, its processes, and an end whatever happens."""

import json
import os
import subprocess
import time

import gaps
from processes import Known, Undisturbed, last_line, rounds, wait_for

STEADY = 10  # steps in one view that make a job steady
MARGIN = 30  # steps to the end of an epoch, where evaluation would be taken for a gap
START = 120  # seconds for a job or a newcomer to make its first steps on a busy machine
REACT = 60  # seconds for anything else


class Job:
    """`pliant run` with `workers` in a folder of its own. Use it with `with`: nothing of it is left afterwards.

    `options` are more of `pliant run`'s, `program` those of the trainer, unless `command` is another program with all of
    its own; `via` is how `pliant` itself is started."""

    def __init__(self, args, folder, workers, epochs, seed=42, environment=None, program=(), options=(), via=(),
                 command=None):
        self.args, self.folder, self.workers, self.via = args, folder, workers, via
        self.name = "elastic"
        self.known, self.agents = Known(), []
        self.records = gaps.Records(folder / "records")
        # A folder of its own keeps other jobs of this user out of sight, and this one out of theirs.
        self.environment = {**os.environ, "PLIANT_DIR": str(folder / "jobs"), **(environment or {})}
        folder.joinpath("jobs").mkdir(parents=True, exist_ok=True, mode=0o700)
        self._start(["-n", workers, "--name", self.name, "--max", 2 * workers + 4, "--max-restarts", 100000,
                     "--threads", 1, "--seed", seed, "--record", folder / "records", "--output-dir", folder / "output",
                     *options, "--",
                     *(command or [args.trainer, "--epochs", epochs, "--batch", args.batch, *program])])

    def _start(self, options):
        argv = [*self.via, self.args.pliant, "run", "--status", "off", "--output", "quiet", *options]
        with (self.folder / "agent.err").open("a") as err:
            try:
                agent = subprocess.Popen([str(part) for part in argv], stdin=subprocess.DEVNULL, stdout=err, stderr=err,
                                         env=self.environment, cwd=rounds.ROOT, start_new_session=True)
            except OSError as error:
                raise rounds.Failure(f"{argv[0]}: {error.strerror}") from None
        self.agents.append(agent)
        self.known.add(agent.pid)

    def attach(self):
        """Another agent in place of one that was killed."""
        self.agents[-1].wait(REACT)
        self._start(["--attach", self.name])

    def call(self, *words):
        """Runs `pliant WORDS`; its stdout."""
        try:
            argv = [str(word) for word in (*self.via, self.args.pliant, *words)]
            done = subprocess.run(argv, capture_output=True, text=True, env=self.environment, cwd=rounds.ROOT,
                                  timeout=REACT)
        except subprocess.TimeoutExpired:
            raise rounds.Failure(f"pliant {words[0]} takes more than {REACT} s") from None
        if done.returncode != 0:
            said = (done.stderr.strip() or done.stdout.strip() or "no word why").splitlines()
            raise rounds.Failure(f"pliant {words[0]}: status {done.returncode}: {said[-1]}")
        return done.stdout

    def status(self):
        seen = json.loads(self.call("status", self.name, "--json"))
        for process in [seen["agent"], seen["coordinator"], *seen["workers"]]:
            self.known.add(process["pid"])
        return seen

    def pids(self):
        """{worker: pid} of those that run."""
        return {worker["id"]: worker["pid"] for worker in self.status()["workers"] if worker["alive"]}

    # ---- waiting ----

    def check(self):
        """Without its agent a job goes on, but nobody here has asked for that."""
        ended = self.agents[-1].poll()
        if ended is not None:
            raise rounds.Failure(f"the job ended with {ended}: {last_line(self.folder / 'agent.err')}")

    def wait(self, what, seconds, condition):
        def looked():
            self.check()
            self.records.poll()
            return condition()
        return wait_for(what, seconds, looked)

    def is_steady(self, workers):
        members = self.records.members()
        return len(members) == workers and all(
            len(own) >= STEADY and own[-STEADY].view == own[-1].view and own[-1].size == workers
            for own in members.values())

    def wait_steady(self, workers, seconds=START):
        """The members, once the job has so many and goes its way."""
        self.wait(f"{workers} workers in step", seconds, lambda: self.is_steady(workers))
        return sorted(self.records.members())

    def wait_mid_epoch(self):
        self.wait("the middle of an epoch", START, lambda: self.records.newest().left >= MARGIN)

    def wait_steps_without(self, victims, survivors, view, count=3):
        """Until all survivors have made some steps in a view that came after."""
        def gone_on():
            own = [self.records.steps[worker] for worker in survivors]
            return all(len(steps) >= count and steps[-count].view > view for steps in own)
        self.wait(f"steps of the others after {victims}", REACT, gone_on)

    # ---- the end ----

    def stop(self):
        self.call("stop", self.name)
        self.agents[-1].wait(REACT)
        self.records.poll()

    def wait_end(self, seconds):
        """Until the job has ended by itself, in good order."""
        end = time.monotonic() + seconds
        while self.agents[-1].poll() is None:
            if time.monotonic() > end:
                raise rounds.Failure(f"the job does not end within {seconds:.0f} s")
            self.records.poll()
            time.sleep(0.2)
        if self.agents[-1].returncode != 0:
            self.check()
        self.records.poll()

    def verify(self):
        """What `pliant verify` has counted. It must find no fault."""
        seen = json.loads(self.call("verify", self.folder / "records", "--json"))
        if seen["ok"] is not True:
            raise rounds.Failure(f"pliant verify: {seen['faults'][0]}")
        return seen

    def __enter__(self):
        return self

    def __exit__(self, *_):
        with Undisturbed():
            try:
                if self.known.alive():
                    self.status()
                    self.call("stop", self.name, "--force")
            except (rounds.Failure, ValueError, KeyError, OSError):
                pass  # it has ended, or cannot be asked any more: what is known of it goes now
            self.known.kill_rest()
            for agent in self.agents:
                agent.wait(REACT)
