"""Operations by name, and the messages for invalid choices."""

import ast

import pytest
import torch

from kernels.dispatch.registry import Choice, Implementation, Operation, Problem, operation, register


def even_rows(configuration, problem):
    return problem["rows"] % configuration["block"] == 0


@pytest.fixture
def halving():
    """An operation with two implementations, removed afterwards."""
    from kernels.dispatch.registry import _operations

    def needs_gpu(problem):
        return None if problem.device == "cuda" else "it needs a GPU"

    implementations = {
        "torch": Implementation("torch", lambda x: x / 2),
        "blocked": Implementation(
            "blocked",
            lambda x, block: x / 2,
            {"block": (1, 2, 4)},
            (even_rows,),
            default={"block": 1},
            suited=lambda problem: {"block": 2 if problem["rows"] % 2 == 0 else 1},
        ),
        "triton": Implementation("triton", lambda x: x / 2, refuses=needs_gpu),
    }
    made = Operation(
        name="halving",
        reference=lambda x: x / 2,
        implementations=implementations,
        inputs=lambda problem, seed: ((torch.ones(problem["rows"]),), {}),
        problems=lambda device: {},
        default=lambda problem: "blocked",
        sizes=("rows",),
        flags=("gradients",),
    )
    yield register(made)
    del _operations["halving"]


def problem(rows=6, device="cpu"):
    return Problem("halving", device, "float32", (("rows", rows),), (("gradients", False),))


def test_a_problem_is_made_in_the_operations_order(halving):
    assert halving.problem("cpu", "float32", (6,), (False,)) == problem()
    with pytest.raises(ValueError):
        halving.problem("cpu", "float32", (6, 7), (False,))


def test_a_problem_answers_by_name_and_reads_as_a_line():
    assert (problem()["rows"], problem()["gradients"]) == (6, False)
    assert str(problem()) == "halving cpu float32 rows=6 gradients=False"
    with pytest.raises(KeyError, match="has no size or flag 'columns'"):
        problem()["columns"]


def test_a_choice_is_the_same_in_any_order_of_its_configuration():
    assert Choice.of("x", {"a": 1, "b": 2}) == Choice.of("x", {"b": 2, "a": 1})
    assert str(Choice.of("blocked", {"b": 2, "a": 1})) == "blocked a=1 b=2"
    assert str(Choice.of("torch")) == "torch"


def test_the_default_suits_the_problem(halving):
    assert halving.default_choice(problem(6)) == Choice.of("blocked", {"block": 2})
    assert halving.default_choice(problem(7)) == Choice.of("blocked", {"block": 1})


def test_only_what_can_run_a_problem_is_a_choice(halving):
    assert halving.choices(problem()) == ["torch", "blocked"]
    assert halving.choices(problem(device="cuda")) == ["torch", "blocked", "triton"]


@pytest.mark.parametrize(
    ("choice", "message"),
    [
        (Choice.of("tritn"), "halving has no implementation 'tritn'. Did you mean 'triton'?"),
        (Choice.of("x"), "halving has no implementation 'x'. Known: torch, blocked, triton."),
        (Choice.of("triton"), "halving: triton cannot run halving cpu .*: it needs a GPU."),
        (Choice.of("blocked", {"blok": 1}), "blocked has no parameter 'blok'. Did you mean 'block'?"),
        (Choice.of("blocked", {"block": 3}), r"block must be one of \[1, 2, 4\], but got 3"),
        (Choice.of("blocked", {"block": 4}), "blocked block=4 breaks a constraint of blocked for halving cpu"),
    ],
    ids=lambda value: str(value) if isinstance(value, Choice) else "",
)
def test_a_choice_that_is_none_is_refused(halving, choice, message):
    with pytest.raises(ValueError, match=message):
        halving.check(choice, problem())


def test_an_unknown_operation_is_told_the_nearest():
    with pytest.raises(ValueError, match=r"'rms_nrm'\. Did you mean 'rms_norm'"):
        operation("rms_nrm")


def test_only_files_of_kernels_import_triton(root):
    """The others are imported without Triton, and before a kernel is needed."""
    for path in (root / "kernels").rglob("*.py"):
        if not path.stem.endswith("_triton"):
            tree = ast.parse(path.read_text(encoding="utf-8"))
            named = [node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
            named += [name.name for node in ast.walk(tree) if isinstance(node, ast.Import) for name in node.names]
            assert not any(name.partition(".")[0] == "triton" for name in named), path


def test_triton_is_refused_where_it_is_missing(monkeypatch):
    monkeypatch.setattr("kernels.rowwise.rows.triton_is_here", lambda: False)
    found = operation("rms_norm")
    assert found.implementations["triton"].refuses(found.problem("cuda", "bfloat16", (8, 8), (False,))) == (
        "Triton is not installed"
    )
