"""nas ask and nas tell: workers from outside share a study by leases."""

import re
import shlex
import time

import pytest

import nas as package
from nas.store import open_store
from searchspace.model.architecture import Architecture


@pytest.fixture
def unstarted(files):
    package.open_study("runs/tiny.db", "tiny", "tiny.yaml").close()


def ask(nas, *options):
    return nas("ask", "tiny", "--json", *options).json()


def tell(nas, asked, *answer):
    return nas("tell", "tiny", asked["unit"], "--owner", asked["owner"], *answer)


def test_two_who_ask_never_get_the_same(unstarted, nas):
    units = [*ask(nas, "--count", "2"), *ask(nas)]

    assert len({each["unit"] for each in units}) == 3
    assert len({Architecture.parse(each["architecture"]).hash for each in units}) == 3


def test_what_is_told_is_recorded(unstarted, nas):
    (asked,) = ask(nas)
    told = tell(nas, asked, "bits_per_byte=2.5", "loss=1.7", "--json")

    assert told.json() == {
        "trial": 0, "rung": 0, "state": "running", "metrics": {"bits_per_byte": 2.5, "loss": 1.7}, "failure": None,
    }  # fmt: skip
    (row,) = nas("best", "tiny", "--json").json()
    assert row["bits_per_byte"] == 2.5
    assert row["flops"] > 0


def test_good_trials_are_asked_for_again_at_the_next_rung_and_then_there_is_nothing_left(unstarted, nas):
    seen = []
    for number in range(20):
        ended = nas("ask", "tiny", "--json")
        if ended.code:
            break
        (asked,) = ended.json()
        seen.append((asked["trial"], asked["rung"], asked["steps"]))
        tell(nas, asked, f"bits_per_byte={number + 1}")

    assert ended.code == 1
    assert "nothing to do" in ended.err
    assert [rung for _, rung, _ in seen].count(0) == 4
    assert {(rung, steps) for _, rung, steps in seen} == {(0, 1), (1, 2)}
    assert nas("status", "tiny", "--json").json()["trials"]["complete"] >= 1


def test_a_lease_that_ran_out_is_given_again_and_its_first_holder_is_refused(unstarted, nas):
    (first,) = ask(nas, "--lease", "1")
    time.sleep(2.1)  # the database counts whole seconds
    (second,) = ask(nas)
    refused = tell(nas, first, "bits_per_byte=1")

    assert second["unit"] == first["unit"]
    assert (refused.code, refused.out) == (1, "")
    assert "Nothing was recorded" in refused.err
    assert nas("best", "tiny", "--json").json() == []
    assert tell(nas, second, "bits_per_byte=2").code == 0
    assert nas("best", "tiny", "--json").json()[0]["bits_per_byte"] == 2


def test_what_was_told_is_not_told_twice(unstarted, nas):
    (asked,) = ask(nas)
    tell(nas, asked, "bits_per_byte=2")
    again = tell(nas, asked, "bits_per_byte=1")

    assert again.code == 1
    assert nas("best", "tiny", "--json").json()[0]["bits_per_byte"] == 2


def test_a_failure_is_told_with_its_reason(unstarted, nas):
    (asked,) = ask(nas)

    told = tell(nas, asked, "--failure", "out of patience", "--failure-kind", "too slow")
    assert "which is failed" in told.err
    with open_store("runs/tiny.db") as store:
        trial = store.trial(store.study("tiny").id, 0)
    assert (trial.error_kind, trial.error_text) == ("too slow", "out of patience")


def test_a_value_that_is_not_finite_is_a_failure(unstarted, nas):
    (asked,) = ask(nas)

    assert "which is failed" in tell(nas, asked, "bits_per_byte=nan").err
    assert nas("status", "tiny", "--json").json()["failures"] == {"not finite": [0]}


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (["bits_per_bite=2"], "Did you mean 'bits_per_bite'?"),
        ([], "bits_per_byte"),
        (["bits_per_byte"], "NAME=VALUE"),
        (["bits_per_byte=low"], "NAME=VALUE"),
        (["bits_per_byte=2", "--failure", "no"], "not both"),
        (["--failure", "no", "--failure-kind", "out of memori"], "Did you mean 'out of memory'?"),
    ],
)
def test_an_answer_that_cannot_be_used_is_refused_and_can_be_given_again(answer, said, unstarted, nas):
    (asked,) = ask(nas)
    refused = tell(nas, asked, *answer)

    assert (refused.code, refused.out) == (2, "")
    assert said in refused.err
    assert tell(nas, asked, "bits_per_byte=2").code == 0


def test_the_text_of_a_unit_is_an_architecture_that_says_how_to_answer(unstarted, nas):
    ended = nas("ask", "tiny", "--storage", "runs/tiny.db")

    assert Architecture.parse(ended.out)
    (answer,) = [line for line in ended.out.splitlines() if line.startswith("# answer: nas ")]
    words = answer.removeprefix("# answer: nas ").replace("METRIC=VALUE ...", "bits_per_byte=2").split()
    assert nas(*words).code == 0


def test_who_asked_is_seen_in_the_status(unstarted, nas):
    ask(nas)

    assert "by nas ask: 1 unit" in nas("status", "tiny").out


@pytest.mark.parametrize("command", [["ask", "tinny"], ["tell", "tinny", "1", "--owner", "me", "loss=1"]])
def test_a_study_that_is_not_there_is_told(command, unstarted, nas):
    ended = nas(*command)

    assert ended.code == 3
    assert "Did you mean 'tiny'?" in ended.err


def test_the_answer_that_ask_suggests_works_wherever_the_database_is(files, nas):
    package.open_study("my units.db", "tiny", "tiny.yaml").close()
    text = nas("ask", "tiny", "--storage", "my units.db").out
    answer = re.search(r"# answer: nas (.+) METRIC=VALUE", text)[1]

    assert nas(*shlex.split(answer), "bits_per_byte=2.5").code == 0
