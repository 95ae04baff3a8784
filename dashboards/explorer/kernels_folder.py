"""The folder in which `nas tune` and tuned kernels keep results by default, as a source for the tuning page.

Another process reads it, because the code that reads it imports torch.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from dashboards.explorer.process import Unavailable, Worker
from nas.errors import NasError
from nas.store.measurements import Measured, Measurement

KEY = "(data folder)"  # no database has this key


class KernelsFolder:
    """It has the parts of a `Source`, and of its `Reader`, that the tuning page needs."""

    key = KEY

    def __init__(self, worker: Worker, root: str = "") -> None:
        self.worker, self.root = worker, root
        self._devices: Mapping[str, dict[str, Any]] = {}

    @property
    def reader(self) -> KernelsFolder:
        return self

    def measured(self, most: int, *, without: Collection[str] = ()) -> list[Measured]:
        """As `Reader.measured`. Raises NasError if the folder could not be read, or only a part of it."""
        answer = self._asked("", "")
        if answer["left"]:
            raise NasError(f"Reading your data folder; {answer['left']} files are left. Reload the page.")
        return [Measured(**row) for row in answer["rows"] if row["operation"] not in without][:most]

    def measurements(self, operation: str, *, problem: str = "") -> list[Measurement]:
        """As `Reader.measurements`. Raises NasError if the folder could not be read."""
        rows = self._asked(operation, problem)["rows"]
        return [Measurement(**{**row, "samples": tuple(row["samples"])}) for row in rows]

    def devices(self) -> Mapping[str, dict[str, Any]]:
        """The fingerprints of the devices in the last answer."""
        return self._devices

    def _asked(self, operation: str, problem: str) -> dict[str, Any]:
        try:
            found = self.worker.ask(changes=True, action="measured", operation=operation, problem=problem)
        except Unavailable as error:
            raise NasError(f"The measurements in your data folder cannot be read now: {error}") from None
        self._devices = found["devices"]
        return found
