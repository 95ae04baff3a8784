"""Errors and wrong answers of a user's own scheduler or strategy name it, and show its code and not ours."""

from itertools import count

import pytest

from nas.errors import AnswerProblem, UsageError
from nas.own.answers import Answers, Refused, shown, whole


class Own(BaseException):
    """An error that no `except Exception` catches."""


class Mine:
    def endless(self):
        return count()

    def answered(self, answer):
        return answer

    def raises(self, error):
        raise error


@pytest.fixture
def answers():
    return Answers("thing", "mine", Mine(), AnswerProblem)


def test_an_endless_answer_is_read_to_one_more_than_is_allowed(answers):
    assert answers.ask("endless", most=2) == (0, 1, 2)
    assert answers.ask("answered", 5, most=2) == 5


@pytest.mark.parametrize("error", [KeyError("x"), SystemExit(0), GeneratorExit(), Own("hm"), RecursionError("deep")])
def test_an_error_names_the_thing_and_the_call(answers, error):
    with pytest.raises(AnswerProblem, match=r"^The thing 'mine' raised an error in raises\(") as caught:
        answers.ask("raises", error)
    said = str(caught.value).splitlines()
    assert said[1].startswith("Traceback") and __file__ in said[2]
    assert "answers.py" not in str(caught.value).replace(__file__, "")


def test_an_error_that_is_clear_and_an_interruption_pass(answers):
    for error in (UsageError("clear"), KeyboardInterrupt()):
        with pytest.raises(type(error)) as caught:
            answers.ask("raises", error)
        assert caught.value is error


def test_what_a_base_class_has_refused_names_the_thing(answers):
    with pytest.raises(AnswerProblem, match=r"^The thing 'mine' broke its contract: f\(\) answered 1\. Expected: 2\.$"):
        answers.ask("raises", Refused("f()", 1, "2"))


def test_what_cannot_be_written_is_named_by_its_type():
    assert shown(type("Mute", (), {"__repr__": lambda self: {}[0]})()) == "a Mute that cannot be written (KeyError)"
    assert len(shown("x" * 10_000)) < 600
    with pytest.raises(KeyboardInterrupt):
        shown(type("Mute", (), {"__repr__": lambda self: Mine().raises(KeyboardInterrupt())})())
    assert whole(True) == whole(1.0) == -1


def test_an_error_that_no_code_of_the_user_has_raised_has_no_traceback(answers):
    with pytest.raises(AnswerProblem, match=r"^The thing 'mine' raised an error in f\(\):\nValueError: .*'no number'$"):
        answers.attempt(lambda: "f()", int, "no number")
