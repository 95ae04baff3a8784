"""Code of users that prints, or ends its process, harms neither a search nor its output."""

import json
import subprocess
import sys

import pytest

TASK = """
import ctypes, os, sys
import torch
from torch.nn import functional as F
from nas.tasks import Task

class Mine(Task):
    batch, length, evaluation_batches = 2, 8, 1

    def requires(self):
        return {"kind": "decoder", "vocabulary": 8}

    def draw(self, split, seed, index):
        return torch.randint(8, (2, 8), generator=torch.Generator().manual_seed(index))

    def loss(self, model, batch, context):
        LOSS
        return F.cross_entropy(model(batch, context).flatten(0, 1), batch.flatten())
"""
SEARCH = """
study: mine
space: {kind: decoder, width: 8, vocabulary: 8, body: !choice [gru, feed_forward]}
task: mine.py
objectives: [loss]
strategy: random
scheduler: {halving: {rungs: [1]}}
runner: {inline: {process: PROCESS}}
limits: {attempts: 1}
budget: {trials: 2}
storage: sqlite:///mine.db
"""


@pytest.fixture
def ended(tmp_path):
    """`ended(command, loss, process)`: how a command ends whose task's loss begins with this statement."""

    def run(command, loss, process="true"):
        (tmp_path / "mine.py").write_text(TASK.replace("LOSS", loss))
        (tmp_path / "search.yaml").write_text(SEARCH.replace("PROCESS", process))
        words = [sys.executable, "-m", "nas", command, "search.yaml"]
        return subprocess.run(
            [*words, "--json"], cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False
        )

    return run


@pytest.mark.parametrize("process", ["true", "false"])
def test_only_the_result_is_on_the_standard_output_whatever_prints(ended, process):
    loud = "print('one'); sys.stdout.flush(); os.write(1, b'two'); os.system('echo three')"
    done = ended("search", loud, process)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["study"] == "mine"
    assert all(each in done.stderr for each in ("one", "two", "three"))


@pytest.mark.parametrize("command", ["search", "plan"])
@pytest.mark.parametrize(
    ("loss", "told"), [("os._exit(7)", "exit code 7"), ("ctypes.string_at(0)", 'mine.py", line 17 in loss')]
)
def test_a_loss_that_ends_its_process_is_told(ended, command, loss, told):
    done = ended(command, loss)
    assert done.returncode == 1 and done.stdout == ""
    assert told in done.stderr and "Traceback" not in done.stderr
