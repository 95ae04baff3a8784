"""Published weights without any package but torch: `nn.Transformer`'s, and what is said of those that do not fit."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from nas.errors import UsageError
from nas.exports.native import native
from nas.exports.winner import Winner
from nas.testing import load_published, published_architecture
from searchspace import zoo
from searchspace.contract import Context
from searchspace.model.build import build

C, H, V = 16, 4, 50


class Translator(nn.Module):
    """`nn.Transformer` between tables and sinusoids; state dict as the layout `torch_transformer` wants it."""

    def __init__(self, *, source: bool, tied: bool, **fields: Any) -> None:
        super().__init__()
        self.embedding = nn.Embedding(V, C)
        self.source_embedding = nn.Embedding(V + 3, C) if source else None
        self.output = None if tied else nn.Linear(C, V, bias=False)
        self.transformer = nn.Transformer(C, H, 2, 3, 40, batch_first=True, **fields)

    def forward(self, source: Tensor, target: Tensor, padding: Tensor, position: Any) -> Tensor:
        def entered(tokens: Tensor, table: nn.Embedding) -> Tensor:
            return position.embed(table(tokens) * C**0.5, torch.arange(tokens.shape[1]))

        future = torch.ones(target.shape[1], target.shape[1], dtype=torch.bool).triu(1)
        vectors = self.transformer(
            entered(source, self.source_embedding or self.embedding),
            entered(target, self.embedding),
            tgt_mask=future,
            src_key_padding_mask=~padding,
            memory_key_padding_mask=~padding,
        )
        return vectors @ (self.output or self.embedding).weight.T


def translator(*, source: bool = False, tied: bool = True, **fields: Any) -> Translator:
    torch.default_generator.manual_seed(0)
    model = Translator(source=source, tied=tied, **fields).double().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return model


# nn.TransformerEncoder says whether its fast path, which is a prototype, is for the layers it is given.
@pytest.mark.filterwarnings("ignore:.*nested.tensor")
@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ({}, {}),
        ({"source": True, "tied": False}, {}),
        ({"bias": False}, {}),
        ({"norm_first": True}, {"order": "pre"}),
        ({"activation": "gelu"}, {"activation": "gelu"}),
    ],
    ids=["plain", "tables of its own", "without biases", "pre-norm", "gelu"],
)
@torch.no_grad()
def test_torchs_transformer(theirs: dict, ours: dict) -> None:
    model = translator(**theirs)
    loaded = load_published("transformer", model.state_dict(), "torch_transformer", heads=H, **ours)
    source, target, padding = torch.randint(0, V, (2, 9)), torch.randint(0, V, (2, 7)), torch.ones(2, 9).bool()
    padding[0, 5:] = False
    found = loaded(source, target, Context(memory_padding=padding))
    torch.testing.assert_close(found, model(source, target, padding, loaded.position), atol=1e-9, rtol=1e-9)


def gpt2() -> dict[str, Tensor]:
    """Weights in the layout of GPT-2, of one layer."""
    torch.default_generator.manual_seed(0)
    shapes = {
        "wte.weight": (V, C), "wpe.weight": (12, C), "ln_f.weight": (C,), "ln_f.bias": (C,),
        "h.0.ln_1.weight": (C,), "h.0.ln_1.bias": (C,), "h.0.ln_2.weight": (C,), "h.0.ln_2.bias": (C,),
        "h.0.attn.c_attn.weight": (C, 3 * C), "h.0.attn.c_attn.bias": (3 * C,),
        "h.0.attn.c_proj.weight": (C, C), "h.0.attn.c_proj.bias": (C,),
        "h.0.mlp.c_fc.weight": (C, 40), "h.0.mlp.c_fc.bias": (40,),
        "h.0.mlp.c_proj.weight": (40, C), "h.0.mlp.c_proj.bias": (C,),
    }  # fmt: skip
    return {name: torch.randn(shape) for name, shape in shapes.items()}


def test_sizes_are_those_of_the_weights_and_fields_go_before_them() -> None:
    weights = gpt2() | {"h.0.attn.masked_bias": torch.zeros(())}  # of older releases, and no part of the model
    root = published_architecture("transformer_decoder", weights, "gpt2", heads=2, eps=1e-6).root
    assert (root.fields["width"], root.fields["vocabulary"], root.fields["position"].fields["length"]) == (C, V, 12)
    assert root.fields["final_norm"].fields["eps"] == 1e-6
    feed_forward = published_architecture(
        "transformer_decoder", weights, "gpt2", heads=2, **{"feed_forward.activation": "relu"}
    ).root.fields["body"][1].fields["of"][0]  # fmt: skip
    assert (feed_forward.fields["hidden"], feed_forward.fields["activation"]) == (40, "relu")


def test_parameters_are_copies_in_the_dtype_of_the_weights() -> None:
    weights = {name: value.bfloat16() for name, value in gpt2().items()}
    model = load_published("transformer_decoder", weights, "gpt2", heads=2)
    assert not model.training and all(parameter.requires_grad for parameter in model.parameters())
    assert model.embedding.table.weight.dtype == torch.bfloat16
    assert model.embedding.table.weight.equal(weights["wte.weight"])
    assert model.embedding.table.weight.data_ptr() != weights["wte.weight"].data_ptr()


def _changed(**changes: Tensor | None) -> dict[str, Tensor]:
    weights = gpt2() | {name.replace("__", "."): value for name, value in changes.items()}
    return {name: value for name, value in weights.items() if value is not None}


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        (_changed(wpe__weight=None), "transformer_decoder does not fit these weights: the weights hold no "
         "'wpe.weight'. Did you mean 'wte.weight'?"),
        (_changed(ln_f__bias=None), "final_norm.bias [16] needs 'ln_f.bias', which the weights do not hold. "
         "Did you mean 'h.0.ln_2.bias'?"),
        (_changed(ln_g__bias=torch.zeros(3)), "'ln_g.bias' [3] has no place in this layout. Did you mean 'ln_f.bias'?"),
        (_changed(h__0__attn__c_proj__weight=torch.zeros(9, 8)),
         "body.0.of.0.output.weight is [16, 16], but 'h.0.attn.c_proj.weight' [9, 8] make [8, 9]"),
    ],
)  # fmt: skip
def test_says_which_weights_do_not_fit(weights: dict, message: str) -> None:
    with pytest.raises(UsageError, match=re.escape(message)):
        load_published("transformer_decoder", weights, "gpt2", heads=2)


def test_names_everything_that_does_not_fit_at_once() -> None:
    weights = _changed(ln_f__bias=None, ln_g__bias=torch.zeros(3))
    with pytest.raises(UsageError, match=r"(?s)needs 'ln_f.bias'.*'ln_g.bias' \[3\] has no place"):
        load_published("transformer_decoder", weights, "gpt2", heads=2)


@pytest.mark.parametrize(
    ("name", "layout", "fields", "message"),
    [
        ("transformer_decoder", "gpt-2", {}, r"No layout is called 'gpt-2'. Did you mean 'gpt2'\? Known: bert, "),
        ("vit", "gpt2", {}, "The layout 'gpt2' is one of transformer_decoder, not of 'vit'"),
        ("transformer_decoder", "gpt2", {}, "16 wide, not 768, and no shape tells heads; give heads="),
        ("transformer_decoder", "gpt2", {"heads": 3}, "dim must be a multiple of heads"),
        ("transformer_decoder", "gpt2", {"heads": 2, "head": 1}, "No block of this decoder has a field head to set"),
    ],
)
def test_refuses_what_cannot_be_read(name: str, layout: str, fields: dict, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        load_published(name, gpt2(), layout, **fields)


def test_a_copy_of_a_table_that_is_none_is_refused() -> None:
    table, copy = torch.zeros(V, C), torch.ones(V, C)
    weights = {"embeddings.word_embeddings.weight": table, "cls.predictions.decoder.weight": copy}
    with pytest.raises(UsageError, match=r"'cls.predictions.decoder.weight' differs from 'embeddings.word_embeddings"):
        load_published("transformer_encoder", weights, "bert", heads=2)


@pytest.mark.parametrize(
    ("fields", "eps", "activation"),
    [
        ({}, 1e-12, "gelu"),
        ({"eps": 1e-5}, 1e-5, "gelu"),
        ({"feed_forward.activation": "gelu_tanh"}, 1e-12, "gelu_tanh"),
        ({"eps": 1e-5, "head_eps": 1e-6}, 1e-6, "gelu"),
    ],
)
def test_the_layer_before_the_logits_of_a_bert_has_the_options_of_its_blocks(fields, eps, activation):
    """transformers has one `layer_norm_eps` and one `hidden_act` for both."""
    architecture = zoo.load("transformer_encoder", "tiny")
    weights = native(Winner(0, architecture, {}, dict), build(architecture).state_dict()).state
    root = published_architecture("transformer_encoder", weights, "bert", heads=4, **fields).configured.config
    assert (root.head_eps, root.head_activation) == (eps, activation)
    with pytest.raises(UsageError, match="head_activation"):
        published_architecture("transformer_encoder", weights, "bert", heads=4, activation="relu")
