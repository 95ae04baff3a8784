"""Checks whether this machine is ready. Each check is a function that returns (ok, what it found and what to do)."""

from __future__ import annotations

import os
import platform
import shlex
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from nas import kernels_folder, location
from nas.errors import NasError
from nas.store import open_reader, open_store
from nas.store.database.engine import file_of, parse

NEEDED = (
    *("torch", "ray", "optuna", "sqlalchemy", "alembic", "pydantic", "typer", "rich", "safetensors", "scikit-learn"),
    *("scipy", "psutil", "filelock"),
)
EXTRAS = {  # extra -> (what it is for, its packages)
    "postgres": ("PostgreSQL", ("psycopg",)),
    "gpu": ("kernels of our own on a GPU", ("triton",)),
    "dashboard": ("the pages of nas dashboard", ("starlette", "uvicorn", "jinja2")),
    "exports": ("exports to ONNX", ("onnx", "onnxscript", "onnxruntime")),
    "tables": ("tables in Parquet", ("pyarrow",)),
}
LEAST_DISK_GIB = 1.0
SHOWN = 5  # faults of a database


@dataclass(frozen=True)
class Finding:
    """What one check found."""

    check: str
    ok: bool
    found: str

    def as_row(self) -> dict[str, str]:
        return {"check": self.check, "state": "ok" if self.ok else "PROBLEM", "found": self.found}


def examine(storage: str | None = None) -> Iterator[Finding]:
    """The findings of all checks. A check that raises is a finding too."""
    for name, check in CHECKS.items():
        yield _tried(name, check)
    storage = storage or os.environ.get(location.VARIABLE)
    yield _tried("database", lambda: _database(storage))
    if storage is not None:
        yield _tried("integrity", lambda: _integrity(storage))


def _tried(name: str, check: Callable[[], tuple[bool, str]]) -> Finding:
    try:
        ok, found = check()
    except NasError as error:
        ok, found = False, str(error)
    except Exception as error:  # a broken installation may raise anything, and the other checks must still run
        ok, found = False, f"{type(error).__name__}: {error}"
    return Finding(name, ok, found)


def _python() -> tuple[bool, str]:
    return sys.version_info >= (3, 11), f"{platform.python_version()} on {platform.platform()}"


def _packages() -> tuple[bool, str]:
    found, missing = [], []
    for name in NEEDED:
        try:
            found.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            missing.append(name)
    if missing:
        return False, f"missing: {', '.join(missing)}; install them with `pip install tessera-nas`"
    return True, ", ".join(found)


def _extras() -> tuple[bool, str]:
    return True, "; ".join(_extra(extra, *needs) for extra, needs in EXTRAS.items())


def _extra(extra: str, purpose: str, packages: Sequence[str]) -> str:
    """The versions of the packages of an extra, and what is missing for which purpose."""
    found, missing = [], []
    for name in packages:
        try:
            found.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            missing.append(name)
    if missing:
        found.append(f"no {', '.join(missing)} ({purpose}, tessera-nas[{extra}])")
    return ", ".join(found)


def _kernels() -> tuple[bool, str]:
    """Hugging Face's distribution `kernels` has a package of the same name."""
    found = kernels_folder.problem()
    return found is None, found or "the package `kernels` is ours"


def _device() -> tuple[bool, str]:
    import torch

    from kernels.dispatch.device import fingerprint

    names = [fingerprint("cpu").name, *(torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count()))]
    return True, "; ".join(names) + ("" if len(names) > 1 else "; no GPU, which is fine")


def _training() -> tuple[bool, str]:
    """One step of a tiny model, forwards and backwards."""
    import torch

    from searchspace import zoo
    from searchspace.model.build import build

    model = build(zoo.load("transformer_decoder", "tiny"))
    model(torch.zeros(1, 8, dtype=torch.long)).sum().backward()
    return True, "a tiny Transformer builds, runs and has gradients"


def _ray() -> tuple[bool, str]:
    import logging

    import ray

    if ray.is_initialized():
        return True, f"this process is part of a cluster of {ray.cluster_resources().get('CPU', 0):g} CPUs"
    ray.init(address="local", num_cpus=1, include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
    try:
        return ray.get(ray.remote(lambda: True).remote(), timeout=60), "starts and runs a task on this machine"
    finally:
        ray.shutdown()


def _disk() -> tuple[bool, str]:
    places = (Path.cwd(), Path(tempfile.gettempdir()))
    free, place = min((shutil.disk_usage(place).free / 2**30, place) for place in places)
    return free >= LEAST_DISK_GIB, f"{free:.1f} GiB free in {place}"


def _database(storage: str | None) -> tuple[bool, str]:
    """Open the named database; without a name, try to make a SQLite file in a temporary folder."""
    with tempfile.TemporaryDirectory() as folder:
        file = file_of(parse(storage)) if storage else None
        if storage and file is not None and not file.exists():
            made_by = shlex.join(["nas", "search", "FILE", "--storage", location.shown(storage)])
            return False, f"there is no file {file}; `{made_by}` would make it"
        with open_reader(storage) if storage else open_store(Path(folder) / "doctor.db") as store:
            names = [study.name for study in store.studies()]
    if storage is None:
        return True, "a SQLite study database can be made"
    return True, f"{location.shown(storage)} holds {', '.join(names) or 'no study yet'}"


def _integrity(storage: str) -> tuple[bool, str]:
    with open_reader(storage) as store:
        found = store.faults()
    if found:
        return False, f"{'; '.join(found[:SHOWN])}. Keep a copy, then take your last backup (`nas backup` makes one)"
    return True, "the database finds no fault in its file"


CHECKS: dict[str, Callable[[], tuple[bool, str]]] = {
    "python": _python,
    "packages": _packages,
    "extras": _extras,
    "kernels": _kernels,
    "device": _device,
    "training": _training,
    "ray": _ray,
    "disk": _disk,
}
