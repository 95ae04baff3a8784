"""The next symbol is drawn from the distribution that the options describe."""

import pytest
import torch

from nas.generation.sampling import Sampling

LOGITS = torch.tensor([[0.1, 0.2, 0.4, 0.3]]).log()


def test_without_options_the_probabilities_are_those_of_the_model():
    assert torch.allclose(Sampling().probabilities(LOGITS), LOGITS.double().softmax(-1))


def test_temperature_zero_takes_the_most_likely_symbol():
    assert Sampling(temperature=0).next(LOGITS).tolist() == [2]


def test_top_k_keeps_the_k_most_likely_symbols():
    found = Sampling(top_k=2).probabilities(LOGITS)

    assert found.tolist()[0] == pytest.approx([0, 0, 4 / 7, 3 / 7])
    assert Sampling(top_k=9).probabilities(LOGITS).count_nonzero() == 4


@pytest.mark.parametrize(("p", "expected"), [(0.3, [2]), (0.41, [2, 3]), (0.75, [1, 2, 3]), (1.0, [0, 1, 2, 3])])
def test_top_p_keeps_the_smallest_set_with_that_mass(p, expected):
    found = Sampling(top_p=p).probabilities(LOGITS)[0]

    assert found.nonzero()[:, 0].tolist() == expected
    assert found.sum() == pytest.approx(1)


@pytest.mark.parametrize("options", [{"temperature": -1.0}, {"top_k": -1}, {"top_p": 0.0}, {"top_p": 1.1}])
def test_impossible_options_are_refused(options):
    with pytest.raises(ValueError, match=next(iter(options))):
        Sampling(**options)


def test_a_tiny_temperature_takes_the_most_likely_symbol():
    assert Sampling(temperature=1e-320).probabilities(LOGITS).tolist() == [[0, 0, 1, 0]]


def test_top_k_of_equal_symbols_keeps_k_of_them():
    assert Sampling(top_k=2).probabilities(torch.zeros(1, 4)).tolist() == [[0.5, 0.5, 0, 0]]
