"""A Ray cluster of two nodes with PostgreSQL, and the faults of its parts."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import time
from pathlib import Path
from typing import Any

from benchmarks.chaos import processes
from benchmarks.chaos.drivers import Command, Driver
from benchmarks.chaos.places import Place, signalled
from benchmarks.chaos.search import Search
from benchmarks.chaos.server import Server

# A killed node is noticed after one second instead of 15: the cluster checks more often.
NODE_DEATHS = {"health_check_period_ms": 300, "health_check_failure_threshold": 3}
STEPS = 30  # of the shortest training: a few tenths of a second
STORE_BYTES = 100 * 2**20
MEMORY_MONITOR = {"memory_monitor_refresh_ms": 100}
HOG_BYTES = 5 * 2**30  # more than the node may use beyond what is used when the cluster starts
SPARE_BYTES = 4 * 2**30


class Cluster(Place):
    """A Ray cluster: a head that computes nothing, and two nodes with one CPU each. One process runs the search."""

    needed = 1
    pause = (0.5, 5.0)

    def __init__(self, folder: Path):
        super().__init__(folder)
        from ray.cluster_utils import Cluster as Local

        self._server = Server(folder)
        settings = NODE_DEATHS | MEMORY_MONITOR | {"memory_usage_threshold": _threshold()}
        self._cluster = Local(
            initialize_head=True,
            head_node_args={"num_cpus": 0, "object_store_memory": STORE_BYTES, "_system_config": settings},
        )
        self._nodes = [self._add() for _ in range(2)]
        self.faults = {
            "Ray driver: SIGKILL": self.kill,
            "Ray worker: SIGKILL": lambda luck: self._worker(luck, signal.SIGKILL),
            "Ray worker: SIGTERM": lambda luck: self._worker(luck, signal.SIGTERM),
            "Ray node: killed": self._kill_node,
            "Ray node: drained": self._drain,
            "Ray raylet with its object store: SIGKILL": self._raylet,
            "memory hog on the nodes": self._hog,
            "database of a search on Ray: SIGKILL": lambda luck: self._server.kill(),
        }

    def new_search(self, number: int, trials: int) -> Search:
        runner = f"{{ray: {{workers: 2, address: '{self._cluster.address}'}}}}"
        return Search(
            self.folder,
            number,
            trials=trials,
            steps=STEPS,
            storage=self._server.url,
            runner=runner,
            strategy=self.strategy,
        )

    def driver(self, file: Path, log: Path) -> Driver:
        return Command(file, log)

    def _add(self) -> Any:
        for left in (2, 1, 0):
            try:
                return self._cluster.add_node(num_cpus=1, object_store_memory=STORE_BYTES, wait=False)
            except Exception:  # Ray waits for 30 s, which may be too short on a machine that does other work
                if not left:
                    raise
        return None

    def _replace(self, index: int) -> None:
        with contextlib.suppress(Exception):  # parts of it may already have ended
            self._cluster.remove_node(self._nodes[index], allow_graceful=False)
        self._nodes[index] = self._add()

    def _kill_node(self, luck: random.Random) -> None:
        self._replace(luck.randrange(2))

    def _raylet(self, luck: random.Random) -> None:
        """Kill only the raylet of a node, which contains its object store; the workers end by themselves."""
        index = luck.randrange(2)
        signalled(self._raylets()[index : index + 1], signal.SIGKILL, luck)
        time.sleep(1.0)
        self._replace(index)

    def _drain(self, luck: random.Random) -> None:
        """Ask a node to end its work, as before a preemption, and remove it after the deadline."""
        from ray._raylet import GcsClient

        index = luck.randrange(2)
        deadline = int((time.time() + 2) * 1000)
        with contextlib.suppress(Exception):  # a node that has not registered yet cannot be drained
            gcs = GcsClient(address=self._cluster.address)
            gcs.drain_node(self._nodes[index].node_id, 2, "preempted", deadline)  # 2: preemption
        time.sleep(2.0)
        self._replace(index)

    def _worker(self, luck: random.Random, number: signal.Signals) -> None:
        """Send a signal to a process that trains a unit. Waits up to 10 s for one."""
        for _ in range(100):
            raylets = self._raylets()
            units = [
                pid
                for pid, command in processes.running()
                if command.startswith("ray::") and "trial" in command and processes.parent(pid) in raylets
            ]
            if signalled(units, number, luck):
                return
            time.sleep(0.1)

    def _hog(self, luck: random.Random) -> None:
        """Let another process use so much memory that Ray ends units."""
        hog = os.fork()
        if hog == 0:
            taken = bytearray(HOG_BYTES)
            time.sleep(luck.uniform(0.5, 2.0))
            os._exit(len(taken) == 0)
        os.waitpid(hog, 0)

    def _raylets(self) -> list[int]:
        return [entry.process.pid for node in self._nodes for entry in node.all_processes.get("raylet", [])]

    def close(self) -> None:
        super().close()
        self._cluster.shutdown()
        self._server.close()


class OwnRay(Place):
    """Ray as a search starts it, with SQLite: its parts are killed, and the same command goes on."""

    needed = 1
    pause = (4.0, 12.0)

    def __init__(self, folder: Path):
        super().__init__(folder)
        self.faults = {
            "GCS of the search's own Ray: SIGKILL": lambda luck: self._part("gcs_server"),
            "raylet of the search's own Ray: SIGKILL": lambda luck: self._part("raylet/raylet"),
        }

    def new_search(self, number: int, trials: int) -> Search:
        return Search(
            self.folder,
            number,
            trials=trials,
            steps=STEPS,
            storage=None,
            runner="{ray: {workers: 2}}",
            strategy=self.strategy,
        )

    def driver(self, file: Path, log: Path) -> Driver:
        return Command(file, log)

    def _part(self, name: str) -> None:
        """Kill a part of Ray. Waits up to a minute for it."""
        for _ in range(600):
            found = [pid for driver in self.drivers for pid, each in processes.descendants(driver.pid) if name in each]
            if found:
                processes.send(found[0], signal.SIGKILL)
                return
            if not self.drivers or self.drivers[0].poll() is not None:
                return
            time.sleep(0.1)


def _threshold() -> float:
    """The share of the machine's memory at which Ray ends units: a little more than what is used now."""
    import psutil

    memory = psutil.virtual_memory()
    return min(0.95, (memory.total - memory.available + SPARE_BYTES) / memory.total)
