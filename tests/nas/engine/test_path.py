"""The way of the configuration from the search file to the first unit is short."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import pydantic
import pytest

from nas.config import schema, searchfile
from nas.engine import launch

SEARCH = """
study: short
space: {{kind: decoder, width: !choice [8, 16], body: [feed_forward]}}
task: {{language_model: {{length: 8, batch: 2, evaluation: 64}}}}
objectives: [bits_per_byte, flops]
strategy: aging_evolution
scheduler: {{halving: {{rungs: [2, 4]}}}}
control: {{random: 0.25}}
finals: {{top: 1}}
budget: {{trials: 4}}
storage: sqlite:///{folder}/short.db
checkpoints: null
"""
MOST_FUNCTIONS = 40
SECTIONS = tuple(
    each for _, each in inspect.getmembers(schema, inspect.isclass) if issubclass(each, pydantic.BaseModel)
)
ROOT = str(Path(schema.__file__).parents[2])


class Submitted(BaseException):
    """The first unit came to the runner."""


class First:
    """A runner that stops at the first unit."""

    workers = capacity = 1
    isolates = True

    def submit(self, work: object) -> None:
        raise Submitted

    def progress(self) -> dict[Any, Any]:
        return {}

    def stop_soon(self) -> None: ...

    def close(self) -> None: ...


def holds(value: object) -> bool:
    """Whether a value is a search file or a part of one, or a collection of such parts."""
    inside = value.values() if isinstance(value, dict) else value if isinstance(value, tuple | list) else ()
    return isinstance(value, SECTIONS) or any(isinstance(each, SECTIONS) for each in inside)


@contextmanager
def followed() -> Iterator[tuple[set[tuple[str, str]], list[str]]]:
    """(the functions that take or return the configuration or a part of it, the files that it comes to, in order)."""
    functions: set[tuple[str, str]] = set()
    files: list[str] = []

    def profile(frame: FrameType, event: str, result: object) -> None:
        code = frame.f_code
        if not code.co_filename.startswith(f"{ROOT}/nas/") or event not in ("call", "return"):
            return
        given = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
        values = [frame.f_locals.get(name) for name in given] if event == "call" else [result]
        if any(map(holds, values)):
            functions.add((code.co_filename, code.co_qualname.split(".<locals>")[0]))
            if not files or files[-1] != code.co_filename:
                files.append(code.co_filename)

    sys.setprofile(profile)
    try:
        yield functions, files
    finally:
        sys.setprofile(None)


def test_the_configuration_passes_through_few_functions(tmp_path):
    file = tmp_path / "short.yaml"
    file.write_text(SEARCH.format(folder=tmp_path))
    with followed() as (functions, files), pytest.raises(Submitted):
        launch.search(searchfile.load(file), quiet=True, runner=First())
    listed = "\n".join(f"{name} of {path.removeprefix(ROOT)}" for path, name in sorted(functions))
    back = len(files) - len(set(files))
    assert len(functions) <= MOST_FUNCTIONS, f"{len(functions)} functions, {back} returns to a file:\n{listed}"
