"""Checks formats of an export: each is loaded by its own tool, in a process that cannot import this package.

The module FORMAT.py has `check(folder, expected)`, which returns plain numbers and the weights. expected: example
inputs and outputs of the model, and a text for its tokenizer.
"""

from __future__ import annotations

import importlib.util
import sys
import time
from collections.abc import Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from nas.child import Child, Died, Late, can_fork

HIDDEN = ("nas", "searchspace", "kernels", "tuner")


def run(folder: Path, place: Path, names: Sequence[str], seconds: float) -> dict[str, dict[str, Any] | str]:
    """The numbers of each check, or why it failed. place: has `expected.pt`, and gets FORMAT.pt with the weights.

    seconds: of one check. torch is imported once: the checks run in forks.
    """
    import torch  # noqa: F401

    return {name: _of_child(folder, place, name, seconds) for name in names}


def _of_child(folder: Path, place: Path, name: str, seconds: float) -> dict[str, Any] | str:
    child = Child(check, name, folder, place, method="fork" if can_fork() else "spawn", quiet=True)
    try:
        return child.receive(time.monotonic() + seconds)
    except Late:
        return f"it took longer than {seconds} seconds"
    except Died as error:
        return str(error)
    finally:
        child.kill()


def check(parent: Connection, name: str, folder: Path, place: Path) -> None:
    """The target of a child: send the numbers of one check, or its error."""
    import torch

    file = Path(__file__).parent / f"{name}.py"
    if name != "yaml":
        sys.modules.update(dict.fromkeys(HIDDEN))  # type: ignore[arg-type]
    try:
        found = importlib.util.spec_from_file_location(f"check_{name}", file)
        assert found is not None and found.loader is not None
        module = importlib.util.module_from_spec(found)
        found.loader.exec_module(module)
        numbers, weights = module.check(folder, torch.load(place / "expected.pt"))
        if weights is not None:
            torch.save(weights, place / f"{name}.pt")
        parent.send(numbers)
    except BaseException as error:
        parent.send(f"{type(error).__name__}: {error}")
