"""What every primitive promises, held against every registered one; a new primitive is tested with no line added."""

import pytest
import torch

from searchspace.checking import CHECKS, cases, compiles_as_one_graph, exports_as_a_program, failures
from searchspace.registry import block_types
from searchspace.testing import primitives

CASES = cases(kind for role in ("block", "norm", "position") for kind in primitives(role))
DEFAULTS = [case for case in CASES if case.defaults]
# Compiled and exported in groups: what a call of the compiler takes, whatever it compiles, is a third of the time.
GROUPS = [DEFAULTS[start : start + 8] for start in range(0, len(DEFAULTS), 8)]
# Each block once: in the other direction the compiler has traced it, and rejects what depends on data as export does.
ONCE = list({case.kind: case for case in reversed(DEFAULTS)}.values())[::-1]
EXPORTED = [ONCE[start : start + 8] for start in range(0, len(ONCE), 8)]


def _tests():
    """The checks of one kind, such as those of streaming, and every configuration of a block that makes a promise.

    One test a block and kind: pytest's own work for a test takes longer than most checks of a configuration here.
    """
    kinds, groups = {}, {}
    for check in CHECKS:
        kinds.setdefault(check.run.__module__.rpartition(".")[2], []).append(check)
    for case in CASES:
        groups.setdefault(case.group, []).append(case)
    for kind, checks in kinds.items():
        for group, found in groups.items():
            if any(check.on(case) for check in checks for case in found):
                yield pytest.param(checks, found, id=f"{kind}-{group}")


@pytest.mark.parametrize(("checks", "found"), list(_tests()))
def test_block(checks, found):
    wrong = {each.name: errors for each, errors in failures(checks, found).items() if errors}
    for name, errors in wrong.items():
        for case, error in errors.items():
            error.add_note(f"{name}: {case}")
    if wrong:
        raise ExceptionGroup("promises that are broken", [error for each in wrong.values() for error in each.values()])


def _named(group):
    return "+".join(f"{case.group}" for case in group)  # so that -k finds the group of a block


@pytest.mark.parametrize("group", GROUPS, ids=_named)
def test_compiled_copies_agree(group, monkeypatch):
    monkeypatch.setattr(torch._dynamo.guards, "profile_guard_manager", lambda *_: 0.0)  # it times, and judges nothing
    torch.default_generator.manual_seed(0)
    compiles_as_one_graph(group)


@pytest.mark.parametrize("group", EXPORTED, ids=_named)
def test_exported_programs_agree(group):
    torch.default_generator.manual_seed(0)
    exports_as_a_program(group)


def test_a_name_that_several_roles_share_is_written_alike():
    written = {}
    for role in ("block", "norm", "position", "model"):
        for name, kind in block_types(role).items():
            assert list(written.setdefault(name, kind.fields)) == list(kind.fields), name
