"""The operation with faults, registered while a test of the tuner runs, and children that soon lose their patience."""

import importlib.util
import os
import signal
import sys
from pathlib import Path

import pytest

from kernels.dispatch import registry, tuned
from kernels.dispatch.registry import register
from tuner.measure.children import Children, Patience
from tuner.measure.worker import Settings, load
from tuner.search.results import Results

FAULTY = Path(__file__).with_name("faulty_operation.py")
SIMULATED = "simulated_gpu"  # so that the tests of this folder can import it

SPEC = importlib.util.spec_from_file_location(SIMULATED, Path(__file__).with_name(f"{SIMULATED}.py"))
sys.modules[SIMULATED] = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(sys.modules[SIMULATED])


@pytest.fixture
def faulty(monkeypatch):
    """The module of the operation, registered for this test only."""
    registry.operations()
    monkeypatch.setattr(registry, "_operations", dict(registry._operations))
    sys.modules.pop(f"tuner_loaded_{FAULTY.stem}", None)
    load(FAULTY)
    yield sys.modules[f"tuner_loaded_{FAULTY.stem}"]
    del sys.modules[f"tuner_loaded_{FAULTY.stem}"]


@pytest.fixture
def patience():
    return Patience(shortest=0.5, longest=2.0)


@pytest.fixture
def children(patience):
    with Children(Settings(threads=1, load=(str(FAULTY),)), patience) as found:
        yield found


KILLING = """
import os
import signal
import time
from pathlib import Path

from tuner.measure.worker import Worker

deaths = Path({deaths!r})
measure = Worker.measure


def watched(self, job):
    report = self.report

    def told(step):
        report(step)
        if step.what == {what!r} and len(job.choices) >= {least} and len(deaths.read_text()) < {times}:
            deaths.write_text(deaths.read_text() + "x")
            os.kill(os.getpid(), {number})
            time.sleep(60)

    self.report = told
    try:
        return measure(self, job)
    finally:
        self.report = report


if os.getpid() != {tests}:
    Worker.measure = watched
"""


@pytest.fixture
def killing(tmp_path):
    """`killing(step)`: a file to load. With it a child is killed at its steps of this name, `times` times, in jobs of
    at least `least` choices."""

    def call(what, *, number=signal.SIGKILL, times=1, least=1):
        deaths = tmp_path / f"deaths{len(list(tmp_path.glob('deaths*')))}"
        deaths.write_text("")
        file = deaths.with_suffix(".py")
        plan = {"what": what, "number": int(number), "times": times, "least": least}
        file.write_text(KILLING.format(**plan, deaths=str(deaths), tests=os.getpid()))
        return str(file)

    return call


@pytest.fixture
def tables(tmp_path, monkeypatch):
    """A folder of tables that nothing else writes to."""
    monkeypatch.setenv(tuned.TABLES, str(tmp_path / "tables"))
    tuned.use("cpu", None)
    yield tmp_path / "tables"
    tuned.use("cpu", None)


@pytest.fixture
def store(tmp_path):
    """Where measurements are kept."""
    return Results(tmp_path / "measurements.db")


@pytest.fixture
def changed():
    """`changed(faulty, name=Implementation(...))`: register the operation with other implementations too."""

    def call(faulty, **implementations):
        several = {**faulty.FAULTY.implementations, **implementations}
        register(type(faulty.FAULTY)(**{**vars(faulty.FAULTY), "implementations": several}))

    return call
