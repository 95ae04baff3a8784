"""What every primitive promises, held against every registered one; a new primitive is tested with no line added."""

import pytest
import torch

from searchspace.checking import CHECKS, cases, compiles_as_one_graph, exports_as_a_program
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
    """A check and every configuration of a block that promises it, one after the other.

    One test a block, not one a configuration: pytest's own work for a test takes longer than most checks here.
    """
    for check in CHECKS:
        blocks = {}
        for case in filter(check.on, CASES):
            blocks.setdefault(case.group, []).append(case)
        for group, found in blocks.items():
            yield pytest.param(check, found, id=f"{check.run.__name__}-{group}")


@pytest.mark.parametrize(("check", "found"), list(_tests()))
def test_block(check, found):
    for case in found:
        try:
            check(case)
        except BaseException as error:
            error.add_note(f"in {case.id}")
            raise


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
