"""The command line, called in this process, and one small finished study that all its tests read."""

import contextlib
import io
import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from nas.cli.app import run

SPACE = """\
kind: decoder
width: !choice [16, 32]
vocabulary: 256
tie_embeddings: true
body:
  - residual: {norm: rms_norm, of: {attention: {heads: !choice [2, 4]}}}
  - residual: {norm: rms_norm, of: !choice [{feed_forward: {expand: 2}}, {gated_feed_forward: {expand: 2}}]}
"""
SEARCH = """\
study: tiny
space: space.yaml
task: {language_model: {length: 16, batch: 2, evaluation: 64, data: text.txt}}
objectives: [bits_per_byte, flops]
strategy: random
scheduler: {halving: {rungs: [1, 2], factor: 2}}
recipe: {learning_rate: 1e-3}
budget: {trials: 4}
baselines: [baseline.yaml]
finals: {top: 1, seeds: 2, steps: 2, baselines: transformer, match: parameters, shapes: usual, tune: {}}
runner: {inline: {process: false}}
"""
BASELINE = """\
kind: decoder
width: 16
vocabulary: 256
body:
  - residual: {of: {attention: {heads: 2}}}
  - residual: {of: {feed_forward: {expand: 4}}}
"""


@dataclass(frozen=True)
class Ended:
    """How a command ended."""

    code: int
    out: str
    err: str

    def json(self) -> Any:
        """What it printed, which must be nothing but JSON."""
        return json.loads(self.out, parse_constant=lambda word: pytest.fail(f"{word} is no JSON"))


def call(*arguments: str) -> Ended:
    """`nas ARGUMENTS`."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), pytest.raises(SystemExit) as ended:
        run([str(each) for each in arguments])
    return Ended(ended.value.code or 0, out.getvalue(), err.getvalue())


@pytest.fixture
def nas(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Ended]:
    monkeypatch.delenv("NAS_STORAGE", raising=False)
    return call


def write_files(folder: Path) -> Path:
    """The search file `tiny.yaml` and all that it names."""
    folder.joinpath("space.yaml").write_text(SPACE)
    folder.joinpath("baseline.yaml").write_text(BASELINE)
    folder.joinpath("text.txt").write_text("To be, or not to be, that is the question. " * 100)
    folder.joinpath("tiny.yaml").write_text(SEARCH)
    return folder / "tiny.yaml"


@dataclass(frozen=True)
class Finished:
    """A study that was searched in `folder`, and what that printed."""

    folder: Path
    ended: Ended

    @property
    def storage(self) -> str:
        return str(self.folder / "runs" / "tiny.db")


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Finished:
    """The study of SEARCH after `nas search tiny.yaml`."""
    folder = tmp_path_factory.mktemp("finished")
    write_files(folder)
    before = Path.cwd()
    os.chdir(folder)
    try:
        return Finished(folder, call("search", "tiny.yaml"))
    finally:
        os.chdir(before)


@pytest.fixture
def study(finished: Finished, monkeypatch: pytest.MonkeyPatch) -> Finished:
    """The finished study, from its own folder. For reading only: all tests share it."""
    monkeypatch.chdir(finished.folder)
    return finished


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder to work in, with the files of a search that has not started."""
    write_files(tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path
