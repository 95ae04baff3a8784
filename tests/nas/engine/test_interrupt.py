"""Ctrl-C: what runs is saved and given back, the search says how to go on, and the next one does."""

import multiprocessing
import os
import signal
import subprocess
import sys
import time
import warnings

import pytest

from nas import cli
from nas.config import searchfile
from nas.engine import launch
from nas.store import TrialState, UnitState, open_store
from tests.nas.runners.conftest import SERVICES

STEPS = 200
BARE_RAY = f"""
from ray._private.node import Node
for name in {SERVICES}:
    setattr(Node, name, lambda *_, **__: None)
from nas.cli import main
main()
"""
TASK = """
import os
import time
import torch
from torch.nn import functional as F
from nas.tasks import Task

class Slow(Task):
    batch, length, evaluation_batches = 2, 8, 1
    def __init__(self, mark: str, seconds: float = 0.2):
        self.mark, self.seconds = mark, seconds
    def requires(self):
        return {"kind": "decoder", "vocabulary": 8}
    def draw(self, split, seed, index):
        if split == "train":
            with open(self.mark + ".drawn", "a") as drawn:
                drawn.write(f"{index}\\n")
            if index == 3 or self.seconds > 1:
                open(self.mark, "w").close()
            if os.path.exists(self.mark + ".slow"):
                time.sleep(self.seconds)
        return torch.randint(8, (2, 8), generator=torch.Generator().manual_seed(index))
    def loss(self, model, batch, context):
        return F.cross_entropy(model(batch, context).flatten(0, 1), batch.flatten())
"""
SEARCH = """
study: slow
space: {{kind: decoder, width: !choice [8, 16], vocabulary: 8, body: !choice [attention, feed_forward]}}
task: {{task.py: {{mark: {folder}/mark, seconds: {seconds}}}}}
objectives: [loss]
strategy: random
scheduler: {{full: {{steps: {steps}}}}}
runner: {runner}
budget: {{trials: 2}}
storage: sqlite:///{folder}/slow.db
checkpoints: {folder}/checkpoints
"""


class Forked:
    """`nas ARGUMENTS` in a fork of this process, with the methods of Popen: to import all again takes seconds."""

    def __init__(self, arguments, folder):
        read, write = os.pipe()
        self.stderr = os.fdopen(read)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12 warns of threads
            self.process = multiprocessing.get_context("fork").Process(target=self.run, args=(arguments, folder, write))
            self.process.start()
        os.close(write)

    @staticmethod
    def run(arguments, folder, write):
        os.dup2(write, 2)
        sys.stderr = os.fdopen(2, "w", buffering=1)
        os.chdir(folder)
        sys.argv = ["nas", *arguments]
        signal.signal(signal.SIGINT, signal.default_int_handler)
        cli.main()

    @property
    def returncode(self):
        return self.process.exitcode

    def poll(self):
        return self.process.exitcode

    def send_signal(self, number):
        os.kill(self.process.pid, number)

    def kill(self):
        self.process.kill()

    def wait(self, timeout=None):
        self.process.join(timeout)
        return self.process.exitcode

    def communicate(self, timeout=None):
        errors = "" if self.stderr.closed else self.stderr.read()
        self.stderr.close()
        self.wait(timeout)
        return None, errors


@pytest.fixture
def started(tmp_path):
    """`started(runner, ...)`: `nas search` in a process of its own, once its first unit runs."""
    processes = []

    def start(runner="inline", seconds=0.2, steps=STEPS, **options):
        (tmp_path / "task.py").write_text(TASK)
        (tmp_path / "mark.slow").touch()
        text = SEARCH.format(folder=tmp_path, runner=runner, seconds=seconds, steps=steps)
        (tmp_path / "search.yaml").write_text(text)
        arguments = ["search", str(tmp_path / "search.yaml")]
        if runner == "inline":
            process = Forked(arguments, tmp_path)
        else:
            command, environment = [sys.executable, "-c", BARE_RAY, *arguments], os.environ | {"PYTHONUNBUFFERED": "1"}
            process = subprocess.Popen(
                command, cwd=tmp_path, stderr=subprocess.PIPE, text=True, env=environment, **options
            )
        processes.append(process)
        await_running(tmp_path, process)
        return process

    yield start
    for process in processes:
        if process.poll() is None:
            process.kill()
        process.communicate()


def await_running(folder, process):
    end = time.monotonic() + 150
    while not (folder / "mark").exists():
        assert process.poll() is None, process.stderr.read()
        assert time.monotonic() < end, "no unit began to run"
        time.sleep(0.02)


def ignore_interrupts():
    """As in a command that a shell script starts in the background."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


@pytest.mark.parametrize(
    ("runner", "sent", "options"),
    [
        ("inline", signal.SIGTERM, {}),
        ("{ray: {workers: 1}}", signal.SIGINT, {"preexec_fn": ignore_interrupts}),
    ],
    ids=["inline", "ray, in the background"],
)
def test_ctrl_c_saves_what_runs_and_the_next_search_goes_on(runner, sent, options, started, tmp_path):
    process = started(runner, **options)
    process.send_signal(sent)
    errors = process.communicate(timeout=150)[1]
    assert process.returncode == 130, errors
    assert "Stopping: saving what runs" in errors
    assert "Run the same command again to continue 'slow'" in errors
    drawn = (tmp_path / "mark.drawn").read_text().split()
    with open_store(tmp_path / "slow.db") as store:
        study = store.study("slow")
        assert not store.owners(study.id)
        assert store.open_units(study.id)[UnitState.QUEUED] == sum(store.open_units(study.id).values()) > 0
        first = store.trial(study.id, 0)
    (tmp_path / "mark.slow").unlink()
    text = (tmp_path / "search.yaml").read_text()
    text = text.replace(f"runner: {runner}\n", "runner: {inline: {process: false}}\n")  # a child takes seconds
    config = searchfile.parse(text.replace("budget: {trials: 2}", "budget: {trials: 1}"), folder=tmp_path)
    launch.search(config, quiet=True).store.close()
    with open_store(tmp_path / "slow.db") as store:
        again = store.trial(study.id, 0)
    assert again.architecture_hash == first.architecture_hash
    assert again.state is TrialState.COMPLETE
    before = [int(index) for index in drawn]
    after = [int(index) for index in (tmp_path / "mark.drawn").read_text().split()[len(drawn) :]]
    assert 3 <= after[0] < STEPS
    assert len(before) == after[0]  # the step in which the signal came was done
    assert before[: after[0]] + after[: STEPS - after[0]] == list(range(STEPS))


def test_a_second_ctrl_c_ends_the_search_at_once(started):
    process = started(seconds=600, steps=2)
    process.send_signal(signal.SIGINT)
    assert any("Stopping" in process.stderr.readline() for _ in range(5))  # after what it did before the first trial
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=150) == -signal.SIGINT  # a step takes ten minutes: it did not wait for the unit
