"""What a child process must import for a search, and what it cannot."""

import pytest

from nas.config.parts import parts
from nas.criteria.registry import registry
from nas.own.imported import own
from nas.runners._process import ProcessRunner
from nas.runners.inline import InlineRunner


@pytest.fixture
def defined():
    """`defined(module)`: a criterion of the user's own, defined in that module."""
    registry.names()

    def define(module):
        made = type("Mine", (), {"__module__": module, "__call__": lambda self, outputs, targets: outputs})
        registry.register("mine_alone")(made)

    yield define
    registry._things.pop("mine_alone", None)


def using(describe, criterion="mine_alone", process="true"):
    config = describe()
    runner = config.runner.model_copy(update={"options": {"process": process == "true"}})
    return config.model_copy(update={"recipe": {"criterion": criterion}, "runner": runner})


def test_what_the_package_has_needs_nothing_more(describe):
    found = own(using(describe, "cross_entropy"))
    assert found.modules == found.local == ()


def test_a_module_of_the_user_is_imported_by_the_child(describe, defined):
    defined("json.tool")
    assert own(using(describe)).modules == ("json.tool",)
    assert own(using(describe, "cross_entropy")).modules == ()  # nothing uses it
    assert isinstance(parts(using(describe)).runner(), ProcessRunner)


@pytest.mark.parametrize("module", ["__main__", "a_notebook_that_is_no_file"])
def test_what_a_script_defines_runs_in_its_process_with_a_note(module, describe, defined):
    defined(module)
    said = []
    assert own(using(describe)).local == ("mine_alone",)
    assert isinstance(parts(using(describe)).runner(said.append), InlineRunner)
    assert len(said) == 1 and "cannot import mine_alone" in said[0]
    assert isinstance(parts(using(describe, process="false")).runner(said.append), InlineRunner) and len(said) == 1
