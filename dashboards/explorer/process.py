"""The process that computes costs and layers. It starts when it is first needed, and ends if a request is too slow."""

from __future__ import annotations

import json
import threading
import time
from collections import OrderedDict
from importlib.util import find_spec
from typing import Any

from nas.child import Child, Died, Late

SECONDS = 5.0  # of one request
STARTING = 40.0  # seconds that the process may take to import torch
MOST_TEXT = 12_000  # characters
KEPT = 200  # answers in the cache
PATIENCE = 2.0  # seconds that a page waits for a process that is starting or busy


ANSWER = "dashboards.explorer.worker:answer"


class Unavailable(Exception):
    """There is no answer; the message says why."""


class Worker:
    """Answers requests, one after the other. The answers to the last 200 different requests are cached."""

    def __init__(self, seconds: float = SECONDS, *, enabled: bool = True):
        """seconds: the limit for one request. enabled: False never starts a process."""
        self.enabled = enabled
        self.seconds = seconds
        self._child: Child | None = None
        self._is_ready = False
        self._lock = threading.Lock()
        self._known: OrderedDict[str, dict[str, Any]] = OrderedDict()
        self._began = 0.0

    @property
    def is_possible(self) -> bool:
        """Whether the process may be started and torch is installed. Does not import torch."""
        return self.enabled and find_spec("torch") is not None

    def start(self) -> None:
        """Start the process, so that it is ready when it is needed. Does nothing without torch."""
        if self.is_possible and self._child is None:
            alone = {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
            self._child, self._is_ready, self._began = Child(quiet=True, environment=alone), False, time.monotonic()
            self._child.send((ANSWER, ({"action": "zoo"},)))

    def ask(self, *, changes: bool = False, **asked: Any) -> dict[str, Any]:
        """The answer of the process. changes: do not use the cache, because the answer may have changed.

        Raises Unavailable if torch is missing, a text is too long, or there is no answer in time.
        """
        if not self.is_possible:
            raise Unavailable("Costs and layers need torch, which this server does not use.")
        if any(len(value) > MOST_TEXT for value in asked.values() if isinstance(value, str)):
            raise Unavailable(f"The text must have at most {MOST_TEXT:,} characters.")
        key = json.dumps(asked, sort_keys=True)
        if not self._lock.acquire(timeout=PATIENCE):
            raise Unavailable("Other architectures are being computed. Reload the page in a few seconds.")
        try:
            if changes or key not in self._known:
                self._known[key] = self._asked(asked)
            self._known.move_to_end(key)
            while len(self._known) > KEPT:
                self._known.popitem(last=False)
            return self._known[key]
        finally:
            self._lock.release()

    def _asked(self, asked: dict[str, Any]) -> dict[str, Any]:
        self.start()
        assert self._child is not None
        try:
            if not self._is_ready:
                self._wait(self._child)
            return self._child.call(ANSWER, asked, seconds=self.seconds)
        except Late:
            self.close()
            raise Unavailable(f"The computation was ended after {self.seconds:g} s: this text is too large.") from None
        except Died:
            self.close()
            raise Unavailable("The process that computes costs and layers has ended. Reload the page.") from None
        except Unavailable:
            raise
        except Exception as error:  # a bug: the next request may succeed
            raise Unavailable(f"The computation failed: {type(error).__name__}: {str(error)[:300]}") from error

    def _wait(self, child: Child) -> None:
        """Wait up to 2 seconds for a process that is starting. Raises Unavailable if it needs longer."""
        if not child.has_said(time.monotonic() + PATIENCE):
            if time.monotonic() - self._began > STARTING:
                self.close()
            raise Unavailable("Costs and layers are being prepared. Reload the page in a few seconds.")
        child.receive()
        self._is_ready = True

    def close(self) -> None:
        """End the process."""
        if self._child is not None:
            self._child.kill()
            self._child = None
