"""The short form of control arms: the share of a list of architectures."""

import pytest

from nas.config.controls import arms


@pytest.mark.parametrize("trials", [8, 8.0, "8"], ids=repr)
def test_the_share_of_a_list_is_that_of_one_trial_for_each(trials):
    assert arms(["a.yaml", "b.yaml"], {"trials": trials})["control-list"]["share"] == 0.25


@pytest.mark.parametrize("trials", [None, True, 8.5, []], ids=repr)
def test_a_list_needs_a_number_of_trials(trials):
    with pytest.raises(ValueError, match=r"a list needs `budget: {trials: \.\.\.}`"):
        arms(["a.yaml"], {"trials": trials})
