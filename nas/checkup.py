"""Is this machine ready? Each check is a function that says what it found, and what to do when something is in the way."""

from __future__ import annotations

import platform
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from nas.errors import NasError

NEEDED = ("torch", "ray", "optuna", "sqlalchemy", "alembic", "pydantic", "safetensors", "scikit-learn")
OPTIONAL = {"psycopg": "PostgreSQL (pip install 'tessera-nas[postgres]')", "triton": "GPU kernels (tessera-nas[gpu])"}
LEAST_DISK_GIB = 1.0


@dataclass(frozen=True)
class Finding:
    """What one check found."""

    check: str
    ok: bool
    found: str

    def as_row(self) -> dict[str, str]:
        return {"check": self.check, "state": "ok" if self.ok else "PROBLEM", "found": self.found}


def examine(storage: str | None = None) -> Iterator[Finding]:
    """All checks in turn; a check that breaks is a finding too."""
    for name, check in CHECKS.items():
        yield _tried(name, check)
    yield _tried("database", lambda: _database(storage))


def _tried(name: str, check: Callable[[], tuple[bool, str]]) -> Finding:
    try:
        ok, found = check()
    except Exception as error:  # a broken installation breaks in ways nobody lists; the report must still come
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
    return (
        not missing,
        f"missing: {', '.join(missing)}; run `make test` or pip install again" if missing else ", ".join(found),
    )


def _extras() -> tuple[bool, str]:
    found = []
    for name, purpose in OPTIONAL.items():
        try:
            found.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            found.append(f"no {name}: none of {purpose}")
    return True, "; ".join(found)


def _device() -> tuple[bool, str]:
    import torch

    from tuner.device import fingerprint

    names = [fingerprint("cpu").name, *(torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count()))]
    return True, "; ".join(names) + ("" if len(names) > 1 else "; no GPU, which is fine")


def _training() -> tuple[bool, str]:
    """One step of a tiny model, forwards and backwards."""
    import torch

    from searchspace import zoo
    from searchspace.build import build

    model = build(zoo.load("transformer_decoder", width=32))
    model(torch.zeros(1, 8, dtype=torch.long)).sum().backward()
    return True, "a tiny Transformer builds, runs and has gradients"


def _ray() -> tuple[bool, str]:
    import logging

    import ray

    if ray.is_initialized():
        return True, f"running, {ray.cluster_resources().get('CPU', 0):g} CPUs"
    ray.init(num_cpus=1, include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
    try:
        return ray.get(ray.remote(lambda: True).remote(), timeout=60), "starts and runs a task on this machine"
    finally:
        ray.shutdown()


def _disk() -> tuple[bool, str]:
    rows = []
    for place in (Path.cwd(), Path(tempfile.gettempdir())):
        rows.append((shutil.disk_usage(place).free / 2**30, place))
    free, place = min(rows)
    return free >= LEAST_DISK_GIB, f"{free:.1f} GiB free in {place}"


def _database(storage: str | None) -> tuple[bool, str]:
    from nas.store import open_store

    with tempfile.TemporaryDirectory() as folder:
        try:
            with open_store(storage or Path(folder) / "doctor.db", create=True) as store:
                count = len(store.studies())
        except NasError as error:
            return False, str(error)
    return True, f"{count} studies in {storage}" if storage else "a SQLite study database can be made"


CHECKS: dict[str, Callable[[], tuple[bool, str]]] = {
    "python": _python,
    "packages": _packages,
    "extras": _extras,
    "device": _device,
    "training": _training,
    "ray": _ray,
    "disk": _disk,
}
