import random

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from searchspace import zoo
from searchspace.contract import Context, Streams
from searchspace.errors import SpaceError
from searchspace.model.build import build
from searchspace.random_models import random_model

VOCABULARY = 13


def tokens(batch: int, length: int) -> torch.Tensor:
    return torch.randint(0, VOCABULARY, (batch, length))


def drawn(seed: int) -> torch.nn.Module:
    torch.default_generator.manual_seed(seed)
    return random_model(random.Random(seed), "encoder_decoder", vocabulary=VOCABULARY).build().double().eval()


def published() -> torch.nn.Module:
    torch.default_generator.manual_seed(0)
    return build(zoo.load("transformer", width=32, vocabulary=VOCABULARY)).eval()


@given(st.integers(0, 10**9), st.lists(st.integers(1, 3), min_size=1, max_size=4), st.integers(1, 5))
@settings(max_examples=25)
@torch.no_grad()
def test_decoding_in_pieces_equals_decoding_at_once(seed: int, pieces: list[int], sources: int) -> None:
    model = drawn(seed)
    if model.cannot_stream:
        return
    source, target = tokens(2, sources), tokens(2, sum(pieces))
    context = Context(streams=Streams())
    model.encode(source, context)  # once
    logits = [model.decode(piece, context) for piece in target.split(pieces, dim=1)]
    torch.testing.assert_close(torch.cat(logits, dim=1), model(source, target))


@given(st.integers(0, 10**9), st.integers(1, 5))
@settings(max_examples=25)
@torch.no_grad()
def test_padding_on_either_side_changes_nothing(seed: int, length: int) -> None:
    model, source, target = drawn(seed), tokens(2, length + 2), tokens(2, 7)
    configs = [getattr(module, "config", None) for module in model.modules()]
    assume(all(getattr(config, "hides_padding", True) for config in configs))
    real = torch.arange(length + 2).expand(2, -1) < length
    seen = torch.arange(7).expand(2, -1) < 4
    context = Context(memory_padding=real, padding=seen)
    out = model(source, target, context)[:, :4]
    torch.testing.assert_close(out, model(source[:, :length], target[:, :4]))


@torch.no_grad()
def test_the_target_depends_on_the_source_and_not_on_its_own_future() -> None:
    model, source, target = published(), tokens(1, 5), tokens(1, 6)
    changed = (source + 1) % VOCABULARY
    assert not torch.allclose(model(source, target), model(changed, target), atol=1e-4)
    later = torch.cat([target[:, :3], (target[:, 3:] + 1) % VOCABULARY], dim=1)
    torch.testing.assert_close(model(source, target)[:, :3], model(source, later)[:, :3])


def test_gradients_reach_both_sides_through_one_table() -> None:
    model = published()
    model(tokens(2, 5), tokens(2, 6)).square().sum().backward()
    assert all(p.grad is not None for p in model.parameters())
    assert sum(p.shape == (VOCABULARY, 32) for p in model.parameters()) == 1


def test_losses_of_both_sides_reach_the_caller() -> None:
    halting = "{halting: {times: 2, of: {residual: {of: {attention: {heads: 2%s}}}}}}"
    sides = f"encoder: {halting % ''}\ndecoder: {halting % ', over: memory'}\n"
    text = f"kind: encoder_decoder\nwidth: 8\nvocabulary: 13\n{sides}"
    context = Context()
    build(text)(tokens(2, 4), tokens(2, 3), context)
    assert len(context.losses["ponder"]) == len(context.statistics["halting_steps"]) == 2


def test_decoding_without_a_memory_says_how_to_get_one() -> None:
    with pytest.raises(ValueError, match=r"model\.encode"):
        published().decode(tokens(1, 2), Context())


def test_a_decoder_that_ignores_its_encoder_is_refused() -> None:
    text = "kind: encoder_decoder\nwidth: 8\nvocabulary: 13\nencoder: attention\ndecoder: attention\n"
    with pytest.raises(SpaceError, match=r"attention: \{over: memory\}"):
        build(text)


def test_an_encoder_that_looks_at_a_memory_is_refused() -> None:
    cross = "{attention: {over: memory}}"
    text = f"kind: encoder_decoder\nwidth: 8\nvocabulary: 13\nencoder: {cross}\ndecoder: {cross}\n"
    with pytest.raises(SpaceError, match="this model has no encoder"):
        build(text)


def test_an_encoder_that_leaves_fewer_positions_is_refused() -> None:
    text = "kind: encoder_decoder\nwidth: 8\nvocabulary: 9\ndecoder: {attention: {over: memory}}\nencoder: {hourglass: "
    with pytest.raises(SpaceError, match="the encoder has fewer output positions than the source"):
        build(text + "{stages: [attention, attention], decoder: []}}\n")
    build(text + "{stages: [attention, attention], decoder: [attention]}}\n")
