"""Units run as stateless Ray tasks, on this machine or on a cluster.

A task takes a unit and gives an outcome; nothing else lives on a worker. So a lost worker or node costs the rung it was
training, and the search tries that again elsewhere. Ray's own retries are off: the store counts attempts.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import threading
import time
from typing import Annotated, Any

import ray
from pydantic import BaseModel, ConfigDict, Field

from nas.config import Count
from nas.errors import NasError
from nas.work import Failure, FailureKind, Outcome, Progress, Work

OBJECT_STORE_BYTES = 128 * 2**20  # units and outcomes are a few kilobytes; Ray's default takes 30% of the memory
LOST = (
    ray.exceptions.WorkerCrashedError,
    ray.exceptions.NodeDiedError,
    ray.exceptions.ObjectLostError,
    ray.exceptions.LocalRayletDiedError,
    ray.exceptions.RuntimeEnvSetupError,
)


class RayOptions(BaseModel):
    """What one unit needs, and where: `gpus` may be a fraction; without `workers` the cluster's resources decide."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    workers: Annotated[int, Field(ge=1)] | None = None
    cpus: Annotated[float, Field(gt=0)] = 1
    gpus: Annotated[float, Field(ge=0)] = 0
    memory: Annotated[Count, Field(gt=0)] | None = None
    resources: dict[str, float] = {}
    address: str | None = None


class RayRunner:
    """Submits units to Ray. One unit more than there are workers waits in Ray, so that no worker idles."""

    def __init__(self, options: RayOptions, run: Any = None):
        _connect(options)
        self.workers = options.workers or _workers_that_fit(options)
        self.capacity = self.workers + 1
        self._board: Any = ray.remote(num_cpus=0)(_Board).remote()
        self._task = _unit.options(
            num_cpus=options.cpus,
            num_gpus=options.gpus,
            memory=options.memory,
            resources=options.resources or None,
        )
        self._run = run
        self._running: dict[Any, Work] = {}
        self._heard: tuple[float, dict[tuple[int, int], Progress]] = (0.0, {})

    def submit(self, work: Work) -> None:
        self._running[self._task.remote(work, self._board, self._run)] = work

    def wait(self, timeout: float) -> list[Outcome]:
        if not self._running:
            return []
        ready, _ = ray.wait(list(self._running), num_returns=1, timeout=timeout)
        if ready:  # take along whatever else has come in meanwhile
            ready, _ = ray.wait(list(self._running), num_returns=len(self._running), timeout=0)
        outcomes = [_outcome(reference, self._running.pop(reference)) for reference in ready]
        return [outcome for outcome in outcomes if outcome is not None]

    def progress(self) -> dict[tuple[int, int], Progress]:
        """As the workers last told; asked for at most once a second."""
        asked, known = self._heard
        if time.monotonic() - asked > 1:
            with contextlib.suppress(ray.exceptions.RayError):
                known = ray.get(self._board.read.remote(), timeout=1)
            self._heard = (time.monotonic(), known)
        running = {(work.trial, work.rung) for work in self._running.values()}
        return {key: progress for key, progress in known.items() if key in running}

    def stop_soon(self) -> None:
        """Nothing to do yet: the search interrupts as soon as it comes round."""

    def interrupt(self, seconds: float) -> list[Outcome]:
        """Cancel what runs: Ray raises KeyboardInterrupt in the worker, and the unit saves where it is."""
        for reference in self._running:
            ray.cancel(reference, force=False)
        outcomes, end = [], time.monotonic() + seconds
        while self._running and time.monotonic() < end:
            outcomes += self.wait(timeout=end - time.monotonic())
        self._running.clear()
        return outcomes

    def close(self) -> None:
        ray.shutdown()


def _connect(options: RayOptions) -> None:
    if ray.is_initialized():
        return
    quiet: dict[str, Any] = {"include_dashboard": False, "log_to_driver": False, "logging_level": logging.ERROR}
    try:
        if options.address:
            ray.init(address=options.address, log_to_driver=False, logging_level=logging.ERROR)
        else:
            cpus = options.cpus * (options.workers or 0) or os.cpu_count()
            ray.init(num_cpus=max(1, round(cpus or 1)), object_store_memory=OBJECT_STORE_BYTES, **quiet)
    except (ConnectionError, TimeoutError, RuntimeError, ValueError) as error:
        where = f"the Ray cluster at {options.address!r}" if options.address else "a Ray cluster on this machine"
        raise NasError(
            f"Could not reach {where}: {error}. Start one with `ray start --head`, or use `runner: inline`."
        ) from None


def _workers_that_fit(options: RayOptions) -> int:
    """How many units the cluster holds at once."""
    have = ray.cluster_resources()
    need = {"CPU": options.cpus, "GPU": options.gpus, "memory": options.memory or 0, **options.resources}
    fit = [int(have.get(name, 0) // amount) for name, amount in need.items() if amount]
    if min(fit) < 1:
        raise NasError(f"No node can hold a unit: it needs {need}, and the whole cluster has {have}.")
    return min(fit)


def _outcome(reference: Any, work: Work) -> Outcome | None:
    """What a finished task gave; None for one that was cancelled."""
    try:
        return ray.get(reference)
    except ray.exceptions.TaskCancelledError:
        return None
    except ray.exceptions.OutOfMemoryError as error:
        failure = Failure(FailureKind.OUT_OF_MEMORY, str(error))
    except LOST as error:
        failure = Failure(FailureKind.WORKER_LOST, f"{type(error).__name__}: {error}")
    except ray.exceptions.RayTaskError as error:
        failure = Failure(FailureKind.TASK_ERROR, str(error))
    return Outcome(trial=work.trial, rung=work.rung, seconds=0.0, failure=failure)


@ray.remote(max_retries=0)
def _unit(work: Work, board: Any, run: Any) -> Outcome:
    if run is None:
        from nas.training.unit import run
    last, stop = 0.0, threading.Event()
    # A cancelled task gets SIGINT at any moment; the unit may stop only between two steps, or what it saves is torn.
    signal.signal(signal.SIGINT, lambda *_: stop.set())

    def heard(progress: Progress) -> None:
        nonlocal last
        if stop.is_set():
            raise KeyboardInterrupt
        if time.monotonic() - last > 1:
            last = time.monotonic()
            board.write.remote((work.trial, work.rung), progress)

    return run(work, progress=heard)


class _Board:
    """Where running units say how far they are."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, int], Progress] = {}

    def write(self, key: tuple[int, int], progress: Progress) -> None:
        self._known[key] = progress
        while len(self._known) > 256:
            self._known.pop(next(iter(self._known)))

    def read(self) -> dict[tuple[int, int], Progress]:
        return self._known
