"""What was compared with a default that is no longer the default, and may have been wrong."""

import pytest
import torch

from tuner.triton.kernel import SWITCH

triton = pytest.importorskip("triton")
tl = pytest.importorskip("triton.language")
TensorDescriptor = pytest.importorskip("triton.tools.tensor_descriptor").TensorDescriptor

from scaled_kernel import (  # noqa: E402
    LAUNCHED,
    Pretended,
    allowed,  # noqa: F401
    call,
    grid,
    tuned,
)


def test_what_differs_from_a_wrong_default_is_tried_again_without_it(tmp_path):
    right = [{"BLOCK": 128}, {"BLOCK": 16}, {"BLOCK": 32}]
    broken = tuned(tmp_path, configs=[{"BLOCK": 64, "FAULT": "wrong"}, *right])
    with pytest.warns(RuntimeWarning, match="scale serves; it may be wrong: 3 other configurations give another resul"):
        broken[grid](torch.ones(16), torch.ones(16), 16, 1.5)
    assert broken.best_config.kwargs["BLOCK"] == 64
    assert "it may be wrong: 3 other" in broken.explain(torch.ones(16), torch.ones(16), 16, 1.5).why

    for configs in (right, [*right, {"BLOCK": 64, "FAULT": "wrong"}]):
        kernel = tuned(tmp_path, configs=configs)
        call(kernel)
        assert kernel.best_config.kwargs == {"BLOCK": 32}


WRONG = [{"BLOCK": 128, "FAULT": "wrong"}, {"BLOCK": 32, "FAULT": "wrong"}]


@pytest.mark.parametrize("earlier", [[], [[{"BLOCK": 64}, {"BLOCK": 16}], WRONG], [[*WRONG, {"BLOCK": 64}]]])
def test_without_tuning_nothing_serves_that_was_checked_against_another_default(tmp_path, monkeypatch, earlier):
    """Also if the new default was measured: before the others, or as different from the former default."""
    for configs in earlier or [WRONG]:
        former = tuned(tmp_path, configs=configs)
        former[grid](torch.ones(16), torch.ones(16), 16, 1.5)
    assert former.best_config.kwargs == WRONG[1]

    monkeypatch.setenv(SWITCH, "off")
    mended = tuned(tmp_path, configs=[{"BLOCK": 64}, *WRONG[1:]])
    call(mended)
    assert mended.best_config.kwargs == {"BLOCK": 64}


class Failing(Pretended):
    """As on a machine without room for blocks of 128."""

    def time(self, call):
        milliseconds = super().time(call)
        if LAUNCHED[-1] == 128:
            raise RuntimeError("no room")
        return milliseconds


def test_without_tuning_the_fastest_of_others_serves_if_the_default_cannot_run(tmp_path, monkeypatch):
    blocks = [{"BLOCK": 128}, {"BLOCK": 64}, {"BLOCK": 32}]
    call(tuned(tmp_path, configs=blocks, clock=Failing()))
    monkeypatch.setenv(SWITCH, "off")
    fewer = tuned(tmp_path, configs=blocks[::2])
    call(fewer)
    assert fewer.best_config.kwargs == {"BLOCK": 32}
