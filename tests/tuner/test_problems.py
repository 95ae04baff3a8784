"""Problems as text and in files."""

import pytest

from tuner import problems


def test_text_is_the_same_problem_again(faulty):
    problem = faulty.problem(32, gradients=False)
    text = problems.text(problem, threads=2)

    assert problems.of_text("faulty", "float32", text) == problem
    assert text != problems.text(problem, threads=1)
    assert problems.of_text("faulty", "float32", "{}") is None


def test_a_file_lists_problems_each_once(faulty, tmp_path):
    wanted = [faulty.problem(4), faulty.problem(8)]
    path = tmp_path / "problems.yaml"
    path.write_text("".join(f"- {problems.as_row(each)}\n" for each in [*wanted, *wanted]))

    assert problems.load(path, "cpu") == {"faulty": wanted}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("operation: faulty", "must hold a list of problems, but holds dict"),
        ("- {operation: faulty}", "problem 0 of the list: needs operation, dtype and sizes"),
        ("- {operation: fault, dtype: float32, sizes: {rows: 1}}", "Did you mean 'faulty'"),
        ("- {operation: faulty, dtype: float32, sizes: {row: 1}, flags: {gradients: 1}}", "sizes of faulty are rows"),
        ("- {operation: faulty, dtype: float32, sizes: {rows: 1}}", "flags of faulty are gradients"),
        ("- [", "cannot be read as a list of problems"),
        ("- {operation: faulty, dtype: float32, sizes: {rows: 1}, flags: {gradients: [1]}}", "problem 0 of the list"),
        ("- {operation: faulty, dtype: float32, sizes: {rows: .inf}, flags: {gradients: 1}}", "problem 0 of the list"),
        ("- {operation: faulty, dtype: float32, sizes: 3, flags: {gradients: 1}}", "problem 0 of the list"),
        (
            "- {operation: faulty, dtype: float32, sizes: {rows: 3.7}, flags: {gradients: true}}",
            "whole numbers by name",
        ),
        ("- {operation: faulty, dtype: float32, sizes: {rows: -4}, flags: {gradients: true}}", "whole numbers by name"),
        (
            "- {operation: faulty, dtype: float99, sizes: {rows: 4}, flags: {gradients: 1}}",
            "dtype must be one of torch",
        ),
        ("- {operation: faulty, dtype: nn, sizes: {rows: 4}, flags: {gradients: true}}", "dtype must be one of torch"),
        (
            "- {operation: faulty, dtype: float32, sizes: {rows: 4}, flags: {gradients: true}, device: cuda}",
            "problem 0 of the list: is for the device 'cuda'",
        ),
    ],
)
def test_a_file_that_is_wrong_is_refused_with_the_place(text, says, faulty, tmp_path):
    path = tmp_path / "problems.yaml"
    path.write_text(text)
    with pytest.raises(ValueError, match=says):
        problems.load(path, "cpu")
