"""A criterion is found by its name and computes what it says."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from nas import criteria
from nas.criteria import registry
from nas.errors import UsageError


def test_each_criterion_is_the_formula_of_its_name():
    logits, classes = torch.randn(5, 3, dtype=torch.bfloat16), torch.tensor([0, 2, 1, 1, 0])
    assert criteria.make("cross_entropy")(logits, classes).equal(F.cross_entropy(logits.float(), classes))
    smooth = criteria.make("cross_entropy", {"label_smoothing": 0.3})(logits, classes)
    uniform = -logits.float().log_softmax(1).mean()
    assert smooth.item() == pytest.approx((0.7 * F.cross_entropy(logits.float(), classes) + 0.3 * uniform).item())
    values = torch.tensor([1.0, 3.0])
    assert criteria.make("mean_squared_error")(values, torch.tensor([2.0, 5.0])).item() == 2.5


def test_shapes_that_would_be_broadcast_are_rejected():
    with pytest.raises(ValueError, match=r"one shape, but got \[3, 1\] and \[3\]"):
        criteria.make("mean_squared_error")(torch.zeros(3, 1), torch.zeros(3))


def test_a_criterion_takes_its_kind_of_targets_and_one_without_a_kind_takes_any(monkeypatch):
    assert registry.takes("cross_entropy", "classes") and not registry.takes("cross_entropy", "numbers")
    assert registry.takes("mean_squared_error", "numbers") and not registry.takes("mean_squared_error", "classes")
    assert registry.takes("cross_entropy", None)

    class OneHot(registry.registry.find("mean_squared_error")):
        """It converts classes to numbers."""

    monkeypatch.setitem(registry.registry._things, "one_hot", OneHot)
    assert registry.takes("one_hot", "classes") and registry.takes("one_hot", "numbers")


def test_unknown_names_and_options_are_rejected_with_the_nearest():
    with pytest.raises(UsageError, match=r"Did you mean 'cross_entropy'\?"):
        criteria.make("cros_entropy")
    with pytest.raises(UsageError, match=r"no option 'smoothing'"):
        criteria.make("cross_entropy", {"smoothing": 0.1})
    with pytest.raises(UsageError, match="'label_smoothing': must be less than 1, but got 1"):
        criteria.make("cross_entropy", {"label_smoothing": 1})
