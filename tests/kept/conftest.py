"""How tests read the kept files: unpacked into a folder of their own, with the commands and public names alone."""

import contextlib
import gzip
import importlib
import io
import json
import math
import shutil
import sqlite3
import sys
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest import mock

import pytest
import torch
import yaml
from torch import Tensor, nn

KEPT = Path(__file__).resolve().parent
MADE_IN = "/tmp/kept"  # the folder that the files were made in; databases name it where they name files
# finals train more baselines now, and tune every entrant; a forecast counts what asynchronous halving promotes besides
LARGER = ("final_units", "units")
PROSE = ("phase", "found", "says", "why", "description", "text", "task")  # sentences for people may be worded anew
TIMED = ("milliseconds_a_step", "seconds_a_unit", "search_seconds", "finals_seconds", "storage")  # of this machine


@dataclass(frozen=True)
class Ended:
    """How a command ended."""

    code: int
    out: str
    err: str

    def json(self) -> Any:
        assert self.code == 0, self.err
        return json.loads(self.out)


def call(*arguments: object) -> Ended:
    """`nas ARGUMENTS`, in this process."""
    out, err, code = io.StringIO(), io.StringIO(), 0
    with (
        mock.patch.object(sys, "argv", ["nas", *map(str, arguments)]),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        try:
            importlib.import_module("nas.cli").main()
        except SystemExit as ended:
            code = int(ended.code or 0)
    return Ended(code, out.getvalue(), err.getvalue())


def unpacked(name: str, folder: Path) -> Path:
    """The database of a study below `folder`, as if it had been made there, and beside it all that it needs."""
    for path in (KEPT / "studies").iterdir():
        if path.suffix in (".yaml", ".py", ".txt"):
            shutil.copy(path, folder)
    database = folder / "runs" / f"{name}.db"
    database.parent.mkdir(exist_ok=True)
    database.write_bytes(gzip.decompress((KEPT / "studies" / f"{name}.db.gz").read_bytes()))
    checkpoints = KEPT / "studies" / "checkpoints" / name
    if checkpoints.exists():
        shutil.copytree(checkpoints, folder / "runs" / name)
    change(database, "UPDATE unit SET checkpoint_uri = replace(checkpoint_uri, ?, ?)", MADE_IN, str(folder))
    return database


def rows(database: Path, query: str, *values: object) -> list[tuple]:
    with contextlib.closing(sqlite3.connect(database)) as connection:
        return connection.execute(query, values).fetchall()


def change(database: Path, statement: str, *values: object) -> None:
    with contextlib.closing(sqlite3.connect(database, isolation_level=None)) as connection:
        connection.execute(statement, values)


def differences(old: Any, new: Any, path: str = "") -> list[str]:
    """Where `new` lacks what `old` has, or has another value; what only `new` has is no difference."""
    name = path.rpartition(".")[2]
    if name.partition("[")[0] in LARGER and isinstance(new, int):
        return [] if new >= old else [f"{path}: was {old!r}, is {new!r}"]
    if name in TIMED or (name in PROSE and isinstance(old, str)):
        return [] if type(old) is type(new) else [f"{path}: was {old!r}, is {new!r}"]
    if name == "costs" and isinstance(old, list):
        old, new = ({row["cost"]: row for row in rows} for rows in (old, new))
        expected = old.pop("expected_flops", old["flops"])
        old["flops"] |= {key: value for key, value in expected.items() if key != "cost"}
    if isinstance(old, dict) and "expected_flops" in old:
        old = old | {"flops": old["expected_flops"]}  # one number of FLOPs: that of the steps that halting blocks take
    if isinstance(old, dict) and isinstance(new, dict) and {"top", "seeds", "steps"} <= old.keys():
        old = old | {"steps": new["steps"] and [old["steps"]]}  # finals have several lengths; none are the default ones
    if isinstance(old, dict) and isinstance(new, dict):
        lost = [f"{path}.{key} is gone" for key in old if key not in new]
        return lost + [each for key in old if key in new for each in differences(old[key], new[key], f"{path}.{key}")]
    if isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        return [each for n, pair in enumerate(zip(old, new)) for each in differences(*pair, f"{path}[{n}]")]
    if isinstance(old, float) and isinstance(new, float):
        return [] if math.isclose(old, new, rel_tol=1e-9) else [f"{path}: was {old}, is {new}"]
    same = old == new or (isinstance(old, str) and isinstance(new, str) and with_new_names(old) == with_new_names(new))
    return [] if same else [f"{path}: was {old!r}, is {new!r}"]


def with_new_names(text: str) -> str:
    """Without white space too, as another name may be printed on another line."""
    return "".join(text.replace("kernel_attention", "nadaraya_watson").split())


def filled(model: nn.Module) -> nn.Module:
    """The model in float64 with weights that follow from their names, as if a file of weights had been loaded."""
    model = model.double().eval()
    state, seen = model.state_dict(), {}
    for name, value in state.items():
        if value.is_floating_point():
            generator = torch.Generator().manual_seed(zlib.crc32(name.encode()))
            made = torch.randn(value.shape, generator=generator, dtype=torch.float64) * 0.1 + 0.05
            state[name] = seen.setdefault(value.data_ptr(), made) if value.numel() else made
    model.load_state_dict(state, strict=True)
    return model


def inputs(text: str, length: int) -> tuple[Tensor, ...]:
    """What the model of an architecture reads: the same numbers every time."""
    told = yaml.safe_load(text)

    def symbols(vocabulary: int, step: int) -> Tensor:
        return ((torch.arange(2 * length) * step + 3) % vocabulary).view(2, length)

    if told["kind"] == "encoder_decoder":
        return symbols(told.get("source_vocabulary") or told["vocabulary"], 5), symbols(told["vocabulary"], 7)
    if told["kind"] == "encoder" and told.get("features"):
        return (torch.linspace(-1, 1, 2 * length * told["features"], dtype=torch.float64).view(2, length, -1),)
    return (symbols(told["vocabulary"], 7),)


def answers(model: nn.Module, text: str, length: int = 16) -> list[float]:
    """Some numbers of what the model makes of its inputs."""
    torch.manual_seed(0)
    with torch.no_grad():
        out = model(*inputs(text, length)).flatten()
    return [float(each) for each in (*out[:6], *out[-6:], out.sum(), out.abs().sum())]


def questions(name: str, database: Path) -> list[tuple[str, ...]]:
    """The commands whose answers about a study scripts read."""
    numbers = [each for (each,) in rows(database, "SELECT number FROM trial ORDER BY number")]
    failed = rows(database, "SELECT min(number) FROM trial WHERE state = 'failed'")[0][0]
    shown = sorted({numbers[0], numbers[-1], *([] if failed is None else [failed])})
    asked = [("status", name), ("best", name, "--limit", "30"), ("pareto", name)]
    asked += [("show", f"{name}:{number}") for number in shown]
    asked += [("compare", f"{name}:{numbers[0]}", f"{name}:{numbers[-1]}")]
    asked += [("plan", f"{name}.yaml")] if name == "finished" else []
    return [(*each, "--json") for each in asked]


def searchable(folder: Path) -> None:
    """The search files in `folder`, with the study called `kept` that one of them names."""
    shutil.copytree(KEPT / "search", folder, dirs_exist_ok=True)
    database = unpacked("finished", folder).rename(folder / "runs" / "kept.db")
    change(database, "UPDATE study SET name = 'kept'")


def search_files(folder: Path) -> list[Path]:
    known = [path.name for path in (KEPT / "search").glob("*.yaml")]
    return [folder / name for name in sorted(known) if name not in ("options-space.yaml", "options-baseline.yaml")]


def entered(path: Path, folder: Path) -> dict[str, Any]:
    """What the study of a search file keeps of it, and the first architectures that it proposes."""
    nas = importlib.import_module("nas")
    database = folder / f"{path.stem}.db"
    with nas.open_study(database, path.stem, path) as study:
        slow = path.stem in ("options-latency", "options-every_key")  # measures; has so many baselines
        asked = [] if slow else [each.architecture.hash for each in study.ask(4)]
    ((config,),) = rows(database, "SELECT config FROM study")
    return {"config": json.loads(config.replace(str(folder), "FOLDER")), "asked": asked}


def renamed(text: str) -> bool:
    """Whether a text has the block that was called kernel_attention: its architectures may have another hash now."""
    return "nadaraya_watson" in with_new_names(text)


def spaced(path: Path) -> dict[str, Any]:
    """The size of a space, and what is drawn from it; of the largest, which take seconds to read, the latter alone."""
    drawn = call("space", "sample", path, "-n", "2", "--seed", "3", "--json").json()
    size = None if path.stem.startswith("everything") else call("space", "size", path, "--json").json()
    return {"size": size, "drawn": [{"hash": each["hash"], "renamed": renamed(each["architecture"])} for each in drawn]}


@pytest.fixture
def nas(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Ended]:
    for name in ("NAS_STORAGE", "NAS_KERNEL_LOCK"):
        monkeypatch.delenv(name, raising=False)
    return call


@pytest.fixture
def study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Path]:
    """`study("finished")`: the database of that study, and the folder that it is in as the current one."""

    def open_(name: str) -> Path:
        monkeypatch.chdir(tmp_path)
        return unpacked(name, tmp_path)

    return open_


@pytest.fixture
def kept() -> ModuleType:
    """The functions of this file."""
    return sys.modules[__name__]
