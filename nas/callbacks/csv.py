"""A CSV file with a row for each number: step, name, value."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nas.callbacks.registry import callback

FILE = "metrics.csv"


@callback("csv")
class Csv:
    """`metrics.csv` in the folder of the training. A resumed training appends to it."""

    written = FILE

    def __init__(self, folder: Path, about: Mapping[str, Any]) -> None:
        path = folder / FILE
        new = not path.exists()
        self._file = path.open("a", newline="", encoding="utf-8")
        self._writer = csv.writer(self._file)
        if new:
            self._writer.writerow(["step", "name", "value"])

    def log(self, step: int, values: Mapping[str, float]) -> None:
        self._writer.writerows([step, name, value] for name, value in values.items())
        self._file.flush()

    def close(self) -> None:
        self._file.close()
