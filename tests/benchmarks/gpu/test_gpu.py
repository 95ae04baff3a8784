"""The benchmark of a GPU, run on the CPU: every part measures, is right, goes on, and says which bars it reached."""

import argparse
import json
import subprocess
import sys

import pytest
import torch

from benchmarks.gpu import __main__, cases, choice
from benchmarks.gpu.cases import PARTS, Bar, Case
from kernels.dispatch import registry, tuned
from tests.conftest import QUICK
from tuner.measure.measure import timing

SMALL = ["--device", "cpu", "--small", "--evaluations", "1", "--seconds", "0", "--rounds", "2"]


@pytest.fixture
def run(tmp_path, monkeypatch, capsys):
    """Runs parts of the benchmark -> what it printed as JSON; nothing is compiled."""
    monkeypatch.setenv(tuned.TABLES, "none")
    monkeypatch.setattr(cases, "compiled", lambda call: call)
    monkeypatch.setattr(cases, "optional", lambda path: None)
    places = ["--out", str(tmp_path / "gpu.json"), "--tables", str(tmp_path / "tables"), "--json"]

    def call(*arguments):
        assert __main__.main([*SMALL, *places, "--only", *arguments]) == 0
        captured = capsys.readouterr()
        return json.loads(captured.out), captured.err

    yield call
    monkeypatch.undo()
    tuned.use("cpu", None)


@pytest.mark.parametrize("part", ["attention", "linear_attention", "decode"])
def test_a_part_measures_its_cases_and_holds_them_against_their_bars(run, tmp_path, part):
    told, _ = run(part)

    cases = PARTS[part]("cpu", True)
    assert {row["shape"] for row in told["rows"]} == {case.label for case in cases}
    assert {__main__.OPERATION, "sdpa"} & {row["what"] for row in told["rows"]}
    assert sum("bar " in note for note in told["notes"]) == sum(len(case.bars) for case in cases)
    (table,) = (tmp_path / "tables").iterdir()
    entries = json.loads(table.read_text())["entries"]
    assert [entry["operation"] for entry in entries] == [case.problem.operation for case in cases]


def test_what_is_known_is_not_measured_again_and_time_is_kept(run, monkeypatch):
    first, err = run("decode")
    assert "decode: " in err
    again, err = run("decode")
    assert (again["rows"], err) == (first["rows"], "")
    monkeypatch.setattr(choice, "choose", None)
    _, err = run("attention", "--budget", "-1")
    assert "2 cases are left" in err


def test_every_case_is_a_problem_of_its_operation_and_its_peers_compute_the_same(monkeypatch):
    monkeypatch.setattr(cases, "compiled", lambda call: call)
    for part in PARTS:
        for case in PARTS[part]("cpu", True):
            operation = registry.operation(case.problem.operation)
            operation.check(operation.default_choice(case.problem), case.problem)
            once = choice.Run(operation.inputs(case.problem, 0), case.learns)
            expected = once(lambda *args, **kwargs: operation.reference(*args, **kwargs))  # noqa: B023
            peers, _ = __main__._correct_peers(case, once, operation.reference)
            eager = [name for name in peers if name in ("sdpa", "eager")]
            assert eager or part == "linear_attention"
            assert choice.differs(expected, expected, torch.float32) is None


def test_every_case_on_a_gpu_is_one_that_the_operation_takes():
    for part in PARTS:
        for case in PARTS[part]("cuda", False):
            operation = registry.operation(case.problem.operation)
            assert tuple(name for name, _ in case.problem.flags) == operation.flags
            assert operation.choices(case.problem)


@pytest.mark.parametrize(
    ("bar", "value", "reached"),
    [
        (Bar("best_peer", 1.0), 1.5, True),
        (Bar("times", 2.0, "slow"), 3.0, True),
        (Bar("times", 4.0, "slow"), 3.0, False),
        (Bar("times", 2.0, "missing"), None, None),
        (Bar("of_copy", 0.9), 0.5, False),
        (Bar("triton_amount", 1.0), 2.0, True),
        (Bar("triton_amount", 1.0, device="H100"), 2.0, None),
    ],
    ids=str,
)
def test_bars(bar, value, reached):
    times = {__main__.OPERATION: 2.0, __main__.TRITON: 1.0, "fast": 3.0, "slow": 6.0, "copy": 1.0}
    found = {name: timing([each, each * 1.01, each * 0.99]) for name, each in times.items()}
    case = Case("attention", PARTS["attention"]("cpu", True)[0].problem, lambda arguments: {}, 2e9, "TFLOP/s", (bar,))

    told = __main__.judged(bar, case, found, "NVIDIA A100")

    assert told["reached"] is reached
    assert told["value"] == (None if value is None else pytest.approx(value, rel=0.05))


def test_a_wrong_peer_takes_no_part():
    case = PARTS["decode"]("cpu", True)[0]
    operation = registry.operation("decode_attention")
    run = choice.Run(operation.inputs(case.problem, 0), False)
    wrong = argparse.Namespace(**{**vars(case), "peers": lambda arguments: {"wrong": lambda q, k, v, **_: q * 2}})

    peers, refused = __main__._correct_peers(wrong, run, operation.reference)

    assert peers == {}
    assert refused["wrong"].startswith("it differs by ")


BLOCKED = """
import sys
class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in %r:
            raise ImportError(f"{name} is blocked")
sys.meta_path.insert(0, Blocked())
import benchmarks.gpu.__main__, tuner.replay.record, tuner.triton.decorator, tuner.triton.listener
from kernels.dispatch import registry
assert len(registry.operations()) > 10
tuner.replay.record.main(["softmax", "--device", "cpu", "--folder", sys.argv[1], "--budget", "-1"])
import nas.latency.runs, nas.runners.inline
from nas.training import standalone
from searchspace import zoo
outcome = standalone.train(zoo.load("transformer_decoder", "tiny").text(), "language_model", steps=1)
assert outcome.failure is None, outcome.failure
"""
OTHERS = ("ray", "optuna", "sqlalchemy", "alembic", "pydantic", "typer", "rich", "scipy", "sklearn", "safetensors")


def test_needs_torch_and_numpy_alone(root, tmp_path):
    code = QUICK + BLOCKED % (OTHERS,)
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], cwd=root, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    assert "configurations are left" in done.stderr
