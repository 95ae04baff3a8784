"""A scheduler of the user's own that breaks the contract is stopped, with what it answered and what was expected."""

from itertools import repeat

import numpy as np
import pytest

from nas.errors import UsageError
from nas.schedulers import checked as module
from nas.schedulers.checked import CheckedScheduler, SchedulerProblem
from nas.schedulers.contract import WAIT, Level, Promotion
from nas.schedulers.registry import make, registry, scheduler
from tests.nas.schedulers.test_every_scheduler import EVENTS, given, run, several


class Two:
    """Two steps, then those that did well four: correct, and broken on purpose below."""

    def __init__(self):
        self.waiting = {}

    def start(self, number):
        return 2

    def tell(self, number, rung, values, steps):
        self.waiting[number] = rung, values, steps

    def started(self, number, rung, steps):
        self.waiting.pop(number, None)

    def promotion(self):
        able = [number for number, (rung, values, _) in self.waiting.items() if values is not None and rung == 0]
        return Promotion(able[0], 1, 4) if able else None

    def is_last(self, number, rung, steps):
        return steps >= 4

    def horizon(self, number):
        return 4

    def forecast(self, trials):
        return (Level(trials, 0, 2), Level(trials, 2, 4))


def broken(method, answer):
    """`Two` with another answer of one method: a value, or a function of the scheduler."""

    def answered(self, *arguments):
        return answer(self) if callable(answer) else answer

    return type("Broken", (Two,), {method: answered})()


def checked(made):
    return CheckedScheduler("mine", made)


def told(made, values=(1.0,)):
    """`made`, checked, after trial 0 has ended its first unit, while trial 1 runs."""
    found = checked(made)
    for number in (0, 1):
        found.started(number, 0, 2)
    found.tell(0, 0, values, 2)
    return found


@pytest.mark.parametrize("answer", [0, -1, 2.5, 2.0, "2", None, True, 10**30, 2**31])
def test_the_first_steps_are_a_whole_number_of_at_least_1(answer):
    with pytest.raises(
        SchedulerProblem, match=rf"'mine' broke its contract: start\(3\) answered {answer!r}\. Expected"
    ):
        checked(broken("start", answer)).start(3)


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ("trial 0", "a Promotion, WAIT or None"),
        (Promotion(99, 1, 4), r"a trial that was started, counted within the arm \(0 to 1\)"),
        (Promotion("0", 1, 4), r"the number \(an int\)"),
        (Promotion(1, 1, 4), "a trial whose last unit has ended, but rung 0 of trial 1 was started"),
        (Promotion(0, 0, 4), "rung=1, the next one of trial 0"),
        (Promotion(0, 2, 4), "rung=1, the next one of trial 0"),
        (Promotion(0, 1, 2), "steps from 3 to 2,147,483,647"),
        (Promotion(0, 1, 3.5), "steps from 3 to 2,147,483,647"),
        (Promotion(0, 1, 2**31), "steps from 3 to 2,147,483,647"),
        (Promotion(0, True, 4), "rung=1, the next one of trial 0"),
        (Promotion(False, 1, 4), r"the number \(an int\)"),
        (Promotion(0, 1, 5), r"horizon\(0\) answered 4\. Expected: a whole number, at least 5"),
    ],
)
def test_a_promotion_is_checked(answer, expected):
    with pytest.raises(SchedulerProblem, match=expected) as caught:
        told(broken("promotion", answer)).promotion()
    assert "The scheduler 'mine' broke its contract" in str(caught.value)


def test_a_trial_that_failed_or_ended_does_not_continue():
    again = Promotion(0, 1, 4)
    with pytest.raises(SchedulerProblem, match="trial 0 has failed"):
        told(broken("promotion", again), values=None).promotion()
    last = type("Last", (Two,), {"is_last": lambda *_: True, "promotion": lambda self: again})()
    with pytest.raises(SchedulerProblem, match=r"is_last\(0, 0, 2\) says that it has"):
        told(last).promotion()


def test_a_promotion_that_was_refused_is_not_named_again():
    made = told(broken("promotion", Promotion(0, 1, 4)))
    found = made.promotion()
    made.started(found.number, found.rung, found.steps)
    with pytest.raises(SchedulerProblem, match="must not name this promotion again"):
        made.promotion()


@pytest.mark.parametrize("answer", [1, 4.5, None, 10**30])
def test_the_horizon_covers_what_a_trial_trains(answer):
    with pytest.raises(SchedulerProblem, match=rf"horizon\(0\) answered {answer!r}\. Expected: a whole number"):
        checked(broken("horizon", answer)).start(0)
    with pytest.raises(SchedulerProblem, match="at least 2"):
        told(broken("horizon", answer)).horizon(0)


@pytest.mark.parametrize(
    ("called", "arguments"),
    [
        ("start", (0,)),
        ("tell", (0, 0, (1.0,), 2)),
        ("started", (0, 0, 2)),
        ("promotion", ()),
        ("is_last", (0, 0, 2)),
        ("horizon", (0,)),
        ("forecast", (3,)),
    ],
)
def test_an_error_of_a_scheduler_names_its_method_and_its_line(called, arguments):
    made = type("Raises", (Two,), {called: lambda self, *given: [][len(given)]})()
    with pytest.raises(SchedulerProblem, match=rf"The scheduler 'mine' raised an error in {called}\(") as caught:
        getattr(checked(made), called)(*arguments)
    said = str(caught.value).splitlines()
    assert said[1].startswith("Traceback") and said[-1] == "IndexError: list index out of range"
    assert __file__ in said[2]
    assert "checked.py" not in str(caught.value).replace(__file__, "")


def test_a_scheduler_that_does_not_take_the_arguments_is_named():
    made = type("Few", (Two,), {"promotion": lambda: None})()
    with pytest.raises(SchedulerProblem, match=r"in promotion\(\):\n.*TypeError: .* positional argument"):
        checked(made).promotion()


def test_whole_numbers_of_numpy_become_ints():
    made = told(broken("promotion", Promotion(np.int64(0), np.int64(1), np.int32(4))))
    found = made.promotion()
    assert [type(each) for each in (found.number, found.rung, found.steps)] == [int, int, int]
    assert type(checked(broken("start", np.int64(2))).start(0)) is int
    assert type(checked(broken("horizon", np.int64(4))).horizon(0)) is int
    assert type(checked(broken("forecast", [Level(np.int64(3), 0, 2)])).forecast(3)[0].units) is int


def test_an_array_does_not_say_whether_a_unit_is_the_last():
    with pytest.raises(SchedulerProblem, match=r"is_last\(0, 0, 2\) answered array.*Expected: True or False"):
        checked(broken("is_last", np.array([True, False]))).is_last(0, 0, 2)
    assert checked(broken("is_last", np.bool_(True))).is_last(0, 0, 2) is True


@pytest.mark.parametrize(
    "answer",
    [
        *(None, (3, 0, 2), [Level(3, 0, 2.0)], [Level(3, 4, 2)], [Level(-1, 0, 2)], [Level(3, 0, 2), None]),
        *([Level(2**31, 0, 2)], [Level(10**400, 0, 2)], [Level(10**5000, 0, 2)], [Level(-1, 0, 2)] * 1000),
    ],
    ids=lambda _: "",  # Python does not write whole numbers of 4,301 digits
)
def test_a_forecast_has_levels_of_steps_that_a_trial_can_train(answer):
    with pytest.raises(SchedulerProblem, match=r"forecast\(3\) answered .*Expected: a tuple of Level") as caught:
        checked(broken("forecast", answer)).forecast(3)
    assert len(str(caught.value)) < 1000


def test_a_forecast_may_be_a_generator_and_its_errors_are_those_of_the_scheduler():
    def levels(self):
        yield Level(3, 0, 2)
        if self.waiting:
            raise AttributeError("no such rung")

    assert checked(broken("forecast", levels)).forecast(3) == (Level(3, 0, 2),)
    with pytest.raises(
        SchedulerProblem, match=r"'mine' raised an error in forecast\(3\):\nTraceback(?s:.*)no such rung"
    ):
        told(broken("forecast", levels)).forecast(3)


def test_a_forecast_may_not_be_endless(monkeypatch):
    monkeypatch.setattr(module, "MOST_LEVELS", 3)
    with pytest.raises(SchedulerProblem, match=r"forecast\(3\) answered \(Level.*Expected: a tuple of Level"):
        checked(broken("forecast", lambda self: repeat(Level(1, 0, 2)))).forecast(3)
    assert len(checked(broken("forecast", [Level(1, 0, 2)] * 3)).forecast(3)) == 3


class Unread:
    """A level or a promotion whose fields raise."""

    def __init__(self, *fields):
        pass

    units = start = steps = number = rung = property(lambda self: {}["field"])


def test_an_error_of_a_field_of_an_answer_names_the_scheduler():
    promotion = type("Unread", (Unread, Promotion), {})()
    for answer in ([Unread()], (each for each in (Unread(),))):
        with pytest.raises(
            SchedulerProblem, match=r"'mine' raised an error in forecast\(3\):\n(?s:.*)KeyError: 'field'"
        ):
            checked(broken("forecast", answer)).forecast(3)
    with pytest.raises(SchedulerProblem, match=r"'mine' raised an error in promotion\(\):\n(?s:.*)KeyError: 'field'"):
        told(broken("promotion", promotion)).promotion()


@pytest.mark.parametrize("error", [KeyError, SystemExit])
def test_an_answer_without_a_truth_does_not_say_whether_a_unit_is_the_last(error):
    def raises(self):
        raise error(0)

    answer = type("NoTruth", (), {"__bool__": raises})()
    with pytest.raises(SchedulerProblem, match=r"is_last\(0, 0, 2\) answered .*NoTruth.*Expected: True or False"):
        checked(broken("is_last", answer)).is_last(0, 0, 2)


def test_a_forecast_may_be_empty_or_expect_a_part_of_a_unit():
    assert checked(broken("forecast", ())).forecast(3) == ()
    assert checked(broken("forecast", [Level(2.6, 0, 2)])).forecast(3) == (Level(3, 0, 2),)


def test_waiting_and_no_promotion_are_answers():
    assert told(broken("promotion", WAIT)).promotion() is WAIT
    assert told(broken("promotion", None)).promotion() is None
    assert told(Two()).promotion() == Promotion(0, 1, 4)


@several
@given(events=EVENTS)
def test_no_scheduler_of_the_product_is_stopped(new, events):
    assert run(checked(new()), events).promotions == run(new(), events).promotions
    assert run(checked(new()), events, probe=True).trials > 0


@pytest.fixture
def registered():
    """`registered(cls)`: registers a scheduler as `mine` for one test."""
    yield scheduler("mine")
    registry._things.pop("mine", None)


def test_a_search_ends_with_the_error_and_goes_on_with_a_corrected_scheduler(describe, search, registered):
    registered(type("Same", (Two,), {"promotion": lambda self: Promotion(0, 1, 4) if self.waiting else None}))
    config = describe(scheduler="mine", budget="{trials: 3}")
    with pytest.raises(UsageError, match=r"scheduler 'mine' .* promotion\(\) answered Promotion\(number=0, rung=1"):
        search(config)
    registry._things.pop("mine")
    registered(Two)
    with search(config) as result:
        assert {trial.rung for trial in result.store.trials(result.study.id)} == {1}


def test_a_search_ends_with_the_error_of_a_scheduler(describe, search, registered, monkeypatch):
    registered(type("Raises", (Two,), {"tell": lambda self, number, rung, values, steps: {}[number]}))
    with pytest.raises(UsageError, match=r"scheduler 'mine' raised an error in tell\(0, 0, \(.*\), 2\):\nTraceback"):
        search(describe(scheduler="mine", budget="{trials: 1}"))


def test_a_file_is_rejected_if_the_first_trial_cannot_train(describe, registered):
    registered(type("Zero", (Two,), {"start": lambda *_: 0}))
    with pytest.raises(UsageError, match=r"scheduler: The scheduler 'mine' broke its contract: start\(0\) answered 0"):
        describe(scheduler="mine")


def test_an_error_of_a_constructor_names_the_scheduler(registered):
    registered(type("Raises", (Two,), {"__init__": lambda self: {}["steps"]}))
    with pytest.raises(
        UsageError, match=r"The scheduler 'mine' raised an error when it was made:\nTraceback"
    ) as caught:
        make("mine")
    said = str(caught.value).splitlines()
    assert __file__ in said[2] and said[-1] == "KeyError: 'steps'"
