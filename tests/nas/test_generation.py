"""Sampling and beam search: with kept state and without it, the symbols are the same."""

import itertools

import pytest
import torch

from nas.errors import UsageError
from nas.generation import Sampling, beam, sample
from searchspace import zoo
from searchspace.contract import Context
from searchspace.model.build import build

PROMPT = torch.tensor([[3, 1, 4, 1, 5]])
SMALL = """
kind: decoder
width: 16
vocabulary: 4
body:
  - residual: {of: {attention: {heads: 2}}}
  - residual: {of: gru}
"""


def trained(name):
    torch.manual_seed(1)
    return build(zoo.load(name, "tiny") if "\n" not in name else name).eval()


@pytest.mark.parametrize("name", ["transformer_decoder", "gru", "linear_transformer"])
def test_kept_state_changes_no_symbol(name):
    model = trained(name)
    kept = sample(model, PROMPT, 12, Sampling(top_p=0.9), seed=5)
    again = sample(model, PROMPT, 12, Sampling(top_p=0.9), seed=5, whole=True)

    assert kept.symbols == again.symbols
    assert len(kept.symbols) == 12
    assert kept.tokens_per_second > 0
    assert beam(model, PROMPT, 8, 3).symbols == beam(model, PROMPT, 8, 3, whole=True).symbols


def test_the_seed_decides_the_text():
    model = trained("gru")
    texts = [tuple(sample(model, PROMPT, 12, seed=seed).symbols) for seed in (0, 0, 1)]

    assert texts[0] == texts[1] != texts[2]


def test_one_beam_takes_the_most_likely_symbol_each_time():
    model = trained("transformer_decoder")

    assert beam(model, PROMPT, 6, 1).symbols == sample(model, PROMPT, 6, Sampling(temperature=0)).symbols


def test_as_many_beams_as_sequences_find_the_best_of_all():
    model, prompt = trained(SMALL), torch.tensor([[0, 1]])
    found = beam(model, prompt, 3, 64)
    every = torch.tensor(list(itertools.product(range(4), repeat=3)))
    with torch.inference_mode():
        logits = model(torch.cat([prompt.expand(64, -1), every], dim=1), Context())[:, 1:-1]
    scores = logits.double().log_softmax(-1).gather(2, every[:, :, None]).sum((1, 2))

    assert found.symbols == every[scores.argmax()].tolist()
    assert found.score == pytest.approx(scores.max().item() / 3, rel=1e-5)


def test_as_many_beams_as_sequences_find_the_best_of_those_that_end_too():
    torch.manual_seed(1)
    model, prompt, end = build(SMALL.replace("vocabulary: 4", "vocabulary: 3")).eval(), torch.tensor([[0, 1]]), 2
    for parameter in model.parameters():
        parameter.data *= 3
    scores = {}
    for length in range(1, 5):
        for text in itertools.product(range(3), repeat=length):
            if end not in text[:-1] and (length == 4 or text[-1] == end):
                with torch.inference_mode():
                    logits = model(torch.cat([prompt, torch.tensor([text])], dim=1), Context())[0, 1:-1]
                scores[text] = logits.double().log_softmax(-1).gather(1, torch.tensor(text)[:, None]).mean().item()
    best = max(scores, key=scores.__getitem__)

    found = beam(model, prompt, 4, 81, end=end)
    assert (*found.symbols, end)[: len(best)] == best
    assert found.score == pytest.approx(scores[best], rel=1e-5)


def test_generation_stops_at_the_end():
    model = trained(SMALL)
    symbols = sample(model, torch.tensor([[0]]), 30, seed=3).symbols
    end = symbols[4]

    assert sample(model, torch.tensor([[0]]), 30, seed=3, end=end).symbols == symbols[: symbols.index(end)]


def test_an_encoder_decoder_reads_its_source_once():
    model = trained("transformer")
    start, source = torch.tensor([[2]]), torch.tensor([[7, 8, 9]])
    kept = sample(model, start, 6, Sampling(temperature=0), source=source)

    assert kept.symbols == sample(model, start, 6, Sampling(temperature=0), source=source, whole=True).symbols
    assert beam(model, start, 6, 1, source=source).symbols == kept.symbols
    with pytest.raises(UsageError, match="needs a source"):
        sample(model, start, 6)


def test_an_encoder_and_an_empty_prompt_are_refused():
    with pytest.raises(UsageError, match="encoder"):
        sample(trained("transformer_encoder"), PROMPT, 1)
    with pytest.raises(UsageError, match="at least one symbol"):
        sample(trained("gru"), PROMPT[:, :0], 1)


def test_a_text_ends_where_the_model_can_read_no_further_and_a_longer_prompt_is_refused():
    model = trained("{kind: decoder, width: 8, vocabulary: 4, position: {learned: {length: 5}}, body: attention}\n")
    prompt = torch.tensor([[0, 1]])
    for whole in (False, True):
        found = sample(model, prompt, 9, whole=whole)
        assert (len(found.symbols), "beyond the 5 learned positions" in found.cut) == (4, True)
        assert len(beam(model, prompt, 9, 2, whole=whole).symbols) == 4
    with pytest.raises(UsageError, match="beyond the 5 learned positions"):
        sample(model, torch.zeros(1, 6, dtype=torch.int64), 1)
    body = "position: {learned: {length: 5}}, encoder: attention, decoder: {attention: {over: memory}}"
    pair = trained(f"{{kind: encoder_decoder, width: 8, vocabulary: 4, {body}}}\n")
    with pytest.raises(UsageError, match="beyond the 5 learned positions"):
        sample(pair, prompt, 1, source=torch.zeros(1, 6, dtype=torch.int64))


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
