"""The process that computes costs and layers. It starts when it is first needed, and ends if a request is too slow."""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import sys
import threading
import time
from collections import OrderedDict
from importlib.util import find_spec
from typing import Any

SECONDS = 5.0  # of one request
STARTING = 40.0  # seconds that the process may take to import torch
MOST_TEXT = 12_000  # characters
KEPT = 200  # answers in the cache
PATIENCE = 2.0  # seconds that a page waits for a process that is starting or busy


class Unavailable(Exception):
    """There is no answer; the message says why."""


class Worker:
    """Answers requests, one after the other. The answers to the last 200 different requests are cached."""

    def __init__(self, seconds: float = SECONDS, *, enabled: bool = True):
        """seconds: the limit for one request. enabled: False never starts a process."""
        self.enabled = enabled
        self.seconds = seconds
        self._process: subprocess.Popen[str] | None = None
        self._ready = False
        self._lock = threading.Lock()
        self._known: OrderedDict[str, dict[str, Any]] = OrderedDict()
        self._began = self._started = 0.0

    @property
    def is_possible(self) -> bool:
        """Whether the process may be started and torch is installed. Does not import torch."""
        return self.enabled and find_spec("torch") is not None

    def start(self) -> None:
        """Start the process, so that it is ready when it is needed. Does nothing without torch."""
        if self.is_possible and (self._process is None or self._process.poll() is not None):
            environment = os.environ | {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
            self._process = subprocess.Popen(
                [sys.executable, "-m", "dashboards.explorer.worker"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
                env=environment,
                start_new_session=True,  # Ctrl-C in the terminal ends the server, and the server ends this process
            )
            self._ready, self._began = False, time.monotonic()

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
                self._known[key] = self._asked(key)
            self._known.move_to_end(key)
            while len(self._known) > KEPT:
                self._known.popitem(last=False)
            return self._known[key]
        finally:
            self._lock.release()

    def _asked(self, line: str) -> dict[str, Any]:
        self.start()
        process = self._process
        assert process is not None and process.stdin is not None and process.stdout is not None
        if not self._ready:
            self._wait(process)
        try:
            process.stdin.write(line + "\n")
            process.stdin.flush()
        except OSError:
            self.close()
            raise Unavailable("The process that computes costs and layers has ended. Reload the page.") from None
        if not select.select([process.stdout], [], [], self.seconds)[0]:
            self.close()
            raise Unavailable(f"The computation was ended after {self.seconds:g} s: this text is too large.")
        written = process.stdout.readline()
        if not written:
            self.close()
            raise Unavailable("The process that computes costs and layers has ended. Reload the page.")
        found = json.loads(written)
        if "failed" in found:
            raise Unavailable(f"The computation failed: {found['failed']}")
        return found

    def _wait(self, process: subprocess.Popen[str]) -> None:
        """Wait up to 2 seconds for a process that is starting. Raises Unavailable if it needs longer."""
        assert process.stdin is not None and process.stdout is not None
        if self._began:
            process.stdin.write('{"action": "zoo"}\n')
            process.stdin.flush()
            self._started, self._began = self._began, 0.0
        if not select.select([process.stdout], [], [], PATIENCE)[0]:
            if time.monotonic() - self._started > STARTING:
                self.close()
            raise Unavailable("Costs and layers are being prepared. Reload the page in a few seconds.")
        process.stdout.readline()
        self._ready = True

    def close(self) -> None:
        """End the process."""
        process, self._process, self._ready = self._process, None, False
        if process is not None:
            process.kill()
            with contextlib.suppress(OSError):
                process.communicate()
