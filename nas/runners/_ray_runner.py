"""The Ray runner: units run as stateless Ray tasks, on this machine or on a cluster.

A task takes a unit and returns an outcome; a worker keeps nothing else. So if a worker or a node dies, only the current
rung of its units is lost, and the search repeats it elsewhere. Ray's own retries are off: the store counts attempts.
"""

from __future__ import annotations

import contextlib
import logging
import math
import os
import signal
import threading
import time
from typing import TYPE_CHECKING, Any

import ray

from nas.errors import NasError
from nas.runners.contract import Run, guarded, interrupted_itself
from nas.work import Failure, FailureKind, Outcome, Progress, Work

if TYPE_CHECKING:
    from nas.runners.ray import RayOptions

OBJECT_STORE_BYTES = 128 * 2**20  # units and outcomes are a few kilobytes; Ray's default takes 30% of the memory
HEAR_SECONDS = 1.0  # between two reports of a unit, and between two requests for them


class RayRunner:
    """Submits units to Ray. If the workers fill the cluster, one more unit waits in Ray, so that no worker is idle.

    A Ray that is connected already is used as it is, and stays connected when the runner is closed.
    """

    def __init__(self, options: RayOptions, run: Run | None = None):
        self._own_ray = not ray.is_initialized()
        if self._own_ray:
            _connect(options)
        try:
            most = _units_at_once(options)
        except NasError:
            self._disconnect()
            raise
        self.workers = options.workers or most
        self.capacity = self.workers + (self.workers == most)
        self._board: Any = ray.remote(num_cpus=0, max_restarts=-1)(_Board).remote()
        self._task = _unit.options(
            num_cpus=options.cpus,
            num_gpus=options.gpus,
            memory=options.memory,
            resources=options.resources or None,
        )
        self._run = run
        self._running: dict[Any, Work] = {}
        self._heard: tuple[float, dict[tuple[int, int], Progress]] = (0.0, {})
        self._closing = threading.Lock()  # a thread may ask for the progress while another one closes the runner
        self._closed = self._interrupting = False

    def submit(self, work: Work) -> None:
        self._running[self._task.remote(work, self._board, self._run)] = work

    def wait(self, timeout: float) -> list[Outcome]:
        if not self._running:
            return []
        ready, _ = ray.wait(list(self._running), num_returns=1, timeout=timeout)
        if ready:  # and all others that have ended meanwhile
            ready, _ = ray.wait(list(self._running), num_returns=len(self._running), timeout=0)
        outcomes = []
        for reference in ready:
            work = self._running.pop(reference)
            outcome = _outcome(reference, work)
            if outcome is None and not self._interrupting:
                outcome = interrupted_itself(work)
            outcomes += [] if outcome is None else [outcome]
        return outcomes

    def progress(self) -> dict[tuple[int, int], Progress]:
        """As the workers reported last; requested at most once a second. Nothing after `close`."""
        asked, known = self._heard
        with self._closing:
            if self._closed:
                return {}
            if time.monotonic() - asked > HEAR_SECONDS:
                with contextlib.suppress(ray.exceptions.RayError):
                    known = ray.get(self._board.read.remote(), timeout=1)
                self._heard = (time.monotonic(), known)
        running = {(work.trial, work.rung) for work in list(self._running.values())}  # another thread changes it
        return {key: progress for key, progress in known.items() if key in running}

    def stop_soon(self) -> None:
        """Nothing to do: the search calls `interrupt` soon."""

    def interrupt(self, seconds: float) -> list[Outcome]:
        """Cancel the running units: Ray raises KeyboardInterrupt in the worker, and the unit saves its state."""
        self._interrupting = True
        for reference in self._running:
            ray.cancel(reference, force=False)
        outcomes, end = [], time.monotonic() + seconds
        while self._running and (left := end - time.monotonic()) > 0:
            outcomes += self.wait(left)
        for reference in self._running:
            ray.cancel(reference, force=True)
        self._running.clear()
        return outcomes

    def close(self) -> None:
        with self._closing:
            self._closed = True  # Ray would start again if it were asked for the progress
        if ray.is_initialized():
            for reference in self._running:
                ray.cancel(reference, force=True)
            ray.kill(self._board)
        self._running.clear()
        self._disconnect()

    def _disconnect(self) -> None:
        if self._own_ray:
            ray.shutdown()


def _is_new(record: logging.LogRecord) -> bool:
    """Whether a message of Ray tells something that a search in a thread does not know."""
    return "SIGTERM handler is not set" not in record.getMessage()


logging.getLogger("ray._private.worker").addFilter(_is_new)


def _connect(options: RayOptions) -> None:
    try:
        if options.address:
            ray.init(address=options.address, log_to_driver=False, logging_level=logging.ERROR)
        else:
            _start(options)
    except (ConnectionError, TimeoutError, RuntimeError, ValueError) as error:
        where = f"the Ray cluster at {options.address!r}" if options.address else "Ray on this machine"
        raise NasError(f"Could not reach {where}: {str(error).rstrip('.')}. {_advice(options)}") from None


def _advice(options: RayOptions) -> str:
    if not options.address:
        return "Look at the limits of this machine, or use `runner: inline`."
    return (
        "Start a cluster with `ray start --head`, or use `runner: inline`. A cluster that asks for a token (Ray says "
        "so above) wants RAY_AUTH_MODE=token here, and the head's ~/.ray/auth_token in its place."
    )


def _start(options: RayOptions) -> None:
    """Start a Ray of our own on this machine, with resources for exactly the requested workers."""
    workers = options.workers or max(1, int((os.cpu_count() or 1) / options.cpus))
    ray.init(
        address="local",  # not a cluster that already runs on this machine
        num_cpus=math.ceil(options.cpus * workers),
        resources={name: amount * workers for name, amount in (options.resources or {}).items()},
        object_store_memory=OBJECT_STORE_BYTES,
        include_dashboard=False,
        log_to_driver=False,
        logging_level=logging.ERROR,
    )


def _units_at_once(options: RayOptions) -> int:
    """How many units fit on the nodes at once. If `workers` are given, a cluster may have no space yet: it may grow.

    Raises NasError if no node can hold a unit.
    """
    need = options.needs()
    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    most = sum(min(int(node.get(name, 0) // amount) for name, amount in need.items()) for node in nodes)
    if most or (options.workers and options.address):
        return most
    raise NasError(
        f"No node of the Ray cluster can hold a unit: it needs {_listed(need)}; the nodes have up to "
        f"{_listed(_largest(nodes))}."
    )


def _listed(resources: dict[str, float]) -> str:
    return ", ".join(f"{name} {amount:g}" for name, amount in resources.items())


def _largest(nodes: list[dict[str, float]]) -> dict[str, float]:
    """The largest amount of each resource on one node, without Ray's own, whose names have a colon."""
    names = sorted({name for node in nodes for name in node if ":" not in name})
    return {name: max(node.get(name, 0) for node in nodes) for name in names}


def _outcome(reference: Any, work: Work) -> Outcome | None:
    """The outcome of a finished task; None if it was cancelled. Raises the NasError that a unit raised."""
    try:
        return ray.get(reference)
    except ray.exceptions.TaskCancelledError:
        return None
    except ray.exceptions.OutOfMemoryError as error:
        failure = Failure(FailureKind.OUT_OF_MEMORY, str(error))
    except ray.exceptions.RayTaskError as error:
        if isinstance(error.cause, NasError):
            raise error.cause from None
        failure = Failure(FailureKind.TASK_ERROR, str(error))
    except ray.exceptions.RayError as error:  # its worker, its node or its result is gone
        failure = Failure(FailureKind.WORKER_LOST, f"{type(error).__name__}: {error}")
    return Outcome(trial=work.trial, rung=work.rung, kind=work.kind, seconds=0.0, failure=failure)


@ray.remote(max_retries=0)
def _unit(work: Work, board: Any, run: Run | None) -> Outcome:
    last = 0.0

    def heard(progress: Progress) -> None:
        nonlocal last
        if time.monotonic() - last > HEAR_SECONDS:
            last = time.monotonic()
            board.write.remote((work.trial, work.rung), progress)

    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as in a search that a script started in the background
        signal.signal(signal.SIGINT, signal.default_int_handler)  # or `ray.cancel` would not reach the unit
    return guarded(run, work, heard)


class _Board:
    """An actor that collects the progress of running units."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, int], Progress] = {}

    def write(self, key: tuple[int, int], progress: Progress) -> None:
        self._known[key] = progress
        while len(self._known) > 256:
            self._known.pop(next(iter(self._known)))

    def read(self) -> dict[tuple[int, int], Progress]:
        return self._known
