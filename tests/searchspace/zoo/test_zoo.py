"""The models of the zoo have the sizes in their comments, and an untrained model has a sensible loss."""

import math

import pytest
import torch

from searchspace import zoo
from searchspace.errors import SpaceError
from searchspace.model.architecture import Architecture
from searchspace.model.build import build, cost
from searchspace.parts import configured_below


def small(name: str) -> Architecture:
    return zoo.load(name, "tiny" if "tiny" in zoo.sizes(name) else zoo.BASE)


def test_names_the_first_models() -> None:
    assert {"transformer", "transformer_decoder", "transformer_encoder", "transformer_modern"} < set(zoo.names())


@pytest.mark.parametrize("name", zoo.names())
def test_every_file_names_its_paper_and_survives_a_trip_through_text(name: str) -> None:
    assert "http" in zoo.text(name) or " 20" in zoo.text(name), "the comment at its head cites the paper"
    assert zoo.description(name).endswith((".", ","))
    architecture = zoo.load(name)
    assert Architecture.parse(architecture.text()) == architecture


@pytest.mark.parametrize("name", zoo.names())
def test_the_first_loss_is_near_that_of_guessing(name: str) -> None:
    torch.default_generator.manual_seed(0)
    architecture = small(name)
    model = build(architecture).eval()
    config = architecture.configured.config
    if architecture.root.name == "encoder":
        answers, vectors = config.vocabulary if config.tokens else config.classes, config.features
        batch = torch.randn(64, 16, vectors) if vectors else torch.randint(0, config.vocabulary, (64, 16))
        logits = model(batch).flatten(0, -2)
        target = torch.randint(0, answers, logits.shape[:1])
    else:
        answers = config.vocabulary
        tokens, target = torch.randint(0, answers, (8, 33)), None
        arguments = (tokens, tokens[:, :-1]) if architecture.root.name == "encoder_decoder" else (tokens[:, :-1],)
        logits, target = model(*arguments).flatten(0, 1), tokens[:, 1:].flatten()
    loss = torch.nn.functional.cross_entropy(logits, target).item()
    assert abs(loss - math.log(answers)) < 0.15 * math.log(answers)


def test_the_base_transformer_has_its_published_size() -> None:
    C, E = 512, 2048
    attention = 4 * C**2 + 2 * C  # with its norm
    feed_forward = 2 * C * E + E + C + 2 * C
    layers = 6 * (attention + feed_forward) + 6 * (2 * attention + feed_forward)
    assert cost(zoo.load("transformer")).parameters == 37000 * C + layers  # 63 M; the paper says 65 M


@pytest.mark.parametrize(
    ("name", "size", "parameters"),
    [
        ("transformer_decoder", "base", 124_439_808),
        ("transformer_modern", "base", 6_738_415_616),
        ("transformer_modern", "llama_3_8b", 8_030_261_248),
        ("transformer_encoder", "base", 109_514_298),
        ("transformer_encoder", "large", 335_174_458),
        ("vit", "base", 86_567_656),
        ("vit", "large", 304_326_632),
        ("vit", "huge", 632_045_800),
    ],
)
def test_models_have_the_parameters_of_the_released_weights(name: str, size: str, parameters: int) -> None:
    assert cost(zoo.load(name, size)).parameters == parameters


@pytest.mark.parametrize(
    ("name", "millions"),
    [
        ("evolved_transformer", 64),
        ("primer", 35),
        ("dynamic_convolution", 213),
        ("adaptive_span", 39),
        ("funnel_decoder", 131),
    ],
)
def test_models_have_the_size_that_their_papers_say(name: str, millions: int) -> None:
    assert round(cost(zoo.load(name)).parameters / 1e6) == millions


def test_fields_of_the_model_can_be_replaced() -> None:
    architecture = zoo.load("transformer_decoder", width=96, vocabulary=100)
    assert (architecture.root.fields["width"], architecture.root.fields["vocabulary"]) == (96, 100)
    with pytest.raises(SpaceError, match="no field 'widht'"):
        zoo.load("transformer_decoder", widht=64)


def test_an_unknown_name_is_answered_with_the_nearest() -> None:
    with pytest.raises(SpaceError, match="Did you mean 'transformer_decoder'"):
        zoo.load("transformer_decodr")


def test_the_universal_transformer_shares_one_layer() -> None:
    below = [block.type.name for block in configured_below(zoo.load("universal_transformer").configured)]
    assert below.count("halting") == 1
    assert below.count("attention") == 1
