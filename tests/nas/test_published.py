"""Randomly initialised models of the `transformers` package give the same numbers here, once their weights are loaded.

In float64, to 1e-9; where the package itself computes parts in float32 (Llama's norms and angles, Funnel's scores,
Longformer's softmax), to what that leaves.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from nas.errors import UsageError
from nas.testing import load_published, published_architecture
from searchspace import zoo
from searchspace.backbones.patches import patches
from searchspace.contract import Context
from searchspace.model.architecture import diff
from searchspace.primitives.sparse_attention.bigbird_attention import BigbirdAttention
from searchspace.primitives.sparse_attention.lsh_attention import LshAttention, LshAttentionConfig

V, C, H, T = 50, 16, 4, 13
EXACT, SINGLE = 1e-9, 1e-5
BERT = {
    "vocab_size": V,
    "hidden_size": C,
    "num_hidden_layers": 2,
    "num_attention_heads": H,
    "intermediate_size": 40,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "sep_token_id": 2,
}
GPT2 = {"vocab_size": V, "n_embd": C, "n_layer": 2, "n_head": H, "n_positions": 40, "eos_token_id": 2}
VIT = {
    "hidden_size": C,
    "num_hidden_layers": 2,
    "num_attention_heads": H,
    "intermediate_size": 40,
    "image_size": 32,
    "patch_size": 8,
    "layer_norm_eps": 1e-6,
}
FUNNEL = {"vocab_size": V, "d_model": C, "n_head": H, "d_head": C // H, "d_inner": 40, "num_decoder_layers": 2}


@pytest.fixture(scope="module")
def transformers() -> Any:
    reason = "the test extra brings transformers, whose random models stand for published ones; it is not installed"
    return pytest.importorskip("transformers", reason=reason)


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.default_generator.manual_seed(0)


def shaken(model: nn.Module) -> Any:
    """In float64, every weight away from where it starts, so that none is zero, one, or like another."""
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return model.double().eval()


def words(length: int = T) -> Tensor:
    return torch.randint(3, V, (2, length))


def padded(length: int, count: int) -> Tensor:
    """All real but the last `count` of the first sequence."""
    padding = torch.ones(2, length, dtype=torch.bool)
    padding[0, length - count :] = False
    return padding


def agree(found: Tensor, expected: Tensor, tolerance: float = EXACT) -> None:
    torch.testing.assert_close(found.double(), expected.double(), atol=tolerance, rtol=tolerance)


@pytest.mark.parametrize("length", [1, T, 40])
@pytest.mark.parametrize("model", ["ForMaskedLM", "ForPreTraining", "ForSequenceClassification", "Model"])
@torch.no_grad()
def test_bert_with_and_without_its_heads(transformers: Any, model: str, length: int) -> None:
    source = shaken(getattr(transformers, f"Bert{model}")(transformers.BertConfig(**BERT, num_labels=3)))
    ours = load_published("transformer_encoder", source.state_dict(), "bert", heads=H)
    x, padding, segments = words(length), padded(length, length // 3), torch.randint(0, 2, (2, length))
    found = ours(x, Context(padding=padding, segments=segments))
    expected = source(x, attention_mask=padding.long(), token_type_ids=segments)[0]
    agree(found, expected) if found.dim() == 2 else agree(found[padding], expected[padding])


@torch.no_grad()
def test_the_names_of_berts_first_release_are_read_too(transformers: Any) -> None:
    source = shaken(transformers.BertForMaskedLM(transformers.BertConfig(**BERT)))
    old = {"LayerNorm.weight": "LayerNorm.gamma", "LayerNorm.bias": "LayerNorm.beta"}
    weights = {_replaced(name, old): value for name, value in source.state_dict().items()}
    x = words()
    agree(load_published("transformer_encoder", weights, "bert", heads=H)(x), source(x).logits)


@torch.no_grad()
def test_of_two_copies_of_a_weight_either_may_be_missing(transformers: Any) -> None:
    source, x = shaken(transformers.BertForMaskedLM(transformers.BertConfig(**BERT))), words()
    for missing in ("cls.predictions.decoder.weight", "cls.predictions.decoder.bias", "cls.predictions.bias"):
        weights = {name: value for name, value in source.state_dict().items() if name != missing}
        agree(load_published("transformer_encoder", weights, "bert", heads=H)(x), source(x).logits)


@pytest.mark.parametrize("tied", [True, False])
@torch.no_grad()
def test_gpt2_with_its_table_tied_or_not(transformers: Any, tied: bool) -> None:
    source = shaken(transformers.GPT2LMHeadModel(transformers.GPT2Config(**GPT2, tie_word_embeddings=tied)))
    ours = load_published("transformer_decoder", source.state_dict(), "gpt2", heads=H)
    x, padding = words(), padded(T, 4)
    found, expected = ours(x, Context(padding=padding)), source(x, attention_mask=padding.long()).logits
    agree(found[padding], expected[padding])
    assert (ours.embedding.output is None) == tied


@pytest.mark.parametrize("tied", [True, False])
@torch.no_grad()
def test_llama_with_grouped_queries_and_another_base(transformers: Any, tied: bool) -> None:
    sizes = {key: value for key, value in BERT.items() if key != "sep_token_id"} | {"tie_word_embeddings": tied}
    rope = {"rope_type": "default", "rope_theta": 500.0}
    source = transformers.LlamaForCausalLM(
        transformers.LlamaConfig(**sizes, num_key_value_heads=2, rope_parameters=rope, rms_norm_eps=1e-5)
    )
    fields = {"heads": H, "key_value_heads": 2, "base": 500.0, "eps": 1e-5}
    ours = load_published("transformer_modern", shaken(source).state_dict(), "llama", **fields)
    x, padding = words(), padded(T, 4)
    found, expected = ours(x, Context(padding=padding)), source(x, attention_mask=padding.long()).logits
    agree(found[padding], expected[padding], SINGLE)


@torch.no_grad()
def test_vision_transformer(transformers: Any) -> None:
    source = shaken(transformers.ViTForImageClassification(transformers.ViTConfig(**VIT, num_labels=3)))
    images = torch.randn(2, 3, 32, 32, dtype=torch.float64)
    ours = load_published("vit", source.state_dict(), "vit", heads=H)
    agree(ours(patches(images, 8)), source(images).logits)
    names = {
        "vit.layers.": "vit.encoder.layer.",
        "attention.q_proj": "attention.attention.query",
        "attention.k_proj": "attention.attention.key",
        "attention.v_proj": "attention.attention.value",
        "attention.o_proj": "attention.output.dense",
        "mlp.fc1": "intermediate.dense",
        "mlp.fc2": "output.dense",
    }
    old = {_replaced(name, names): value for name, value in source.state_dict().items()}
    agree(load_published("vit", old, "vit", heads=H)(patches(images, 8)), source(images).logits)


@torch.no_grad()
def test_vision_transformer_without_a_head_and_for_larger_images(transformers: Any) -> None:
    source = shaken(transformers.ViTModel(transformers.ViTConfig(**VIT)))
    ours = load_published("vit", source.state_dict(), "vit", heads=H)
    images = torch.randn(2, 3, 48, 32, dtype=torch.float64)
    ours.position.resize((4, 4), (6, 4))
    agree(ours(patches(images, 8)), source(images, interpolate_pos_encoding=True).last_hidden_state)


@pytest.mark.parametrize("length", [5, 8, T])  # of two positions the package pools none
@pytest.mark.parametrize(
    ("model", "name"),
    [
        ("FunnelBaseModel", "funnel"),
        ("FunnelForSequenceClassification", "funnel"),
        ("FunnelModel", "funnel_decoder"),
        ("FunnelForMaskedLM", "funnel_decoder"),
        ("FunnelForPreTraining", "funnel_decoder"),
    ],
)
@torch.no_grad()
def test_funnel_with_and_without_its_decoder(transformers: Any, model: str, name: str, length: int) -> None:
    config = transformers.FunnelConfig(**FUNNEL, block_sizes=[2, 1, 3])
    source = shaken(getattr(transformers, model)(config))
    ours = load_published(name, source.state_dict(), "funnel")
    x, segments = words(length), torch.randint(0, 2, (2, length))
    segments[:, 0] = 2  # of [CLS]
    inside = segments.masked_fill(torch.arange(length) == 0, -1)
    whole = source.funnel if model == "FunnelForPreTraining" else source
    agree(ours(x, Context(segments=inside)), whole(x, token_type_ids=segments)[0], SINGLE)


@pytest.mark.parametrize("count", [1, 4, 6])
@torch.no_grad()
def test_funnel_pools_padding_too(transformers: Any, count: int) -> None:
    source = shaken(transformers.FunnelForMaskedLM(transformers.FunnelConfig(**FUNNEL, block_sizes=[1, 1, 1])))
    ours = load_published("funnel_decoder", source.state_dict(), "funnel")
    x, padding = words(), padded(T, count)
    found, expected = ours(x, Context(padding=padding)), source(x, attention_mask=padding.long()).logits
    agree(found[padding], expected[padding], SINGLE)


@torch.no_grad()
def test_funnel_may_use_layers_twice(transformers: Any) -> None:
    config = transformers.FunnelConfig(**FUNNEL, block_sizes=[2, 1, 3], block_repeats=[1, 2, 2])
    source, x = shaken(transformers.FunnelForSequenceClassification(config)), words()
    agree(load_published("funnel_shared", source.state_dict(), "funnel")(x), source(x).logits, SINGLE)


@pytest.mark.parametrize("padding", [0, 9])
@torch.no_grad()
def test_nystromformer_as_released(transformers: Any, padding: int) -> None:
    config = transformers.NystromformerConfig(
        **BERT, segment_means_seq_len=24, num_landmarks=8, conv_kernel_size=9, layer_norm_eps=1e-5
    )
    source = shaken(transformers.NystromformerForMaskedLM(config))
    ours = load_published("nystromformer", source.state_dict(), "nystromformer", landmarks=8)
    x, real = words(24), padded(24, padding)
    # Of two dimensions the package makes a mask that its own scores do not take.
    mask = torch.zeros(real.shape, dtype=torch.float64).masked_fill(~real, -torch.inf)[:, None, None]
    agree(ours(x, Context(padding=real)), source(x, attention_mask=mask).logits)


@pytest.mark.parametrize("length", [16, 19, 40])
@pytest.mark.parametrize("model", ["LongformerForMaskedLM", "LongformerForSequenceClassification", "LongformerModel"])
@torch.no_grad()
def test_longformer_in_windows_with_two_global_tokens(transformers: Any, model: str, length: int) -> None:
    sizes = {**BERT, "pad_token_id": 1, "type_vocab_size": 1}
    config = transformers.LongformerConfig(**sizes, attention_window=8, layer_norm_eps=1e-5, num_labels=3)
    source = shaken(getattr(transformers, model)(config))
    ours = load_published("longformer", source.state_dict(), "longformer", heads=H, window=8, global_tokens=2)
    padding = padded(length, 5)
    x, everywhere = words(length).masked_fill(~padding, 1), (torch.arange(length) < 2).expand(2, -1).long()
    found = ours(x, Context(padding=padding))
    expected = source(x, attention_mask=padding.long(), global_attention_mask=everywhere)[0]
    agree(found, expected, SINGLE) if found.dim() == 2 else agree(found[padding], expected[padding], SINGLE)


@torch.no_grad()
def test_longformer_with_other_global_positions_in_each_sequence(transformers: Any) -> None:
    sizes = {**BERT, "pad_token_id": 1, "type_vocab_size": 1}
    config = transformers.LongformerConfig(**sizes, attention_window=8, layer_norm_eps=1e-5)
    source = shaken(transformers.LongformerModel(config))
    options = {"heads": H, "window": 8, "global_tokens": 3, "global_at": "context"}
    ours = load_published("longformer", source.state_dict(), "longformer", **options)
    padding, marks = padded(40, 5), torch.zeros(2, 40, dtype=torch.bool)
    marks[0, [0, 17, 39]] = marks[1, 11] = True
    x = words(40).masked_fill(~padding, 1)
    found = ours(x, Context(padding=padding, global_positions=marks))
    expected = source(x, attention_mask=padding.long(), global_attention_mask=(marks & padding).long())[0]
    agree(found[padding], expected[padding], SINGLE)


@pytest.mark.parametrize(("length", "beyond", "end"), [(28, 2, "real"), (48, 2, "real"), (48, 15, "padded")])
@torch.no_grad()
def test_bigbird_where_all_read_all_and_with_the_same_blocks_drawn(
    transformers: Any, length: int, beyond: int, end: str
) -> None:
    config = transformers.BigBirdConfig(**BERT, block_size=4, num_random_blocks=1)
    source = shaken(transformers.BigBirdForMaskedLM(config))
    ours = load_published("bigbird", source.state_dict(), "bigbird", heads=H, block=4, random_blocks=1, end=end)
    theirs = [block for block in source.modules() if type(block).__name__ == "BigBirdBlockSparseAttention"]
    for own, other in zip(_all(ours, BigbirdAttention), theirs, strict=True):
        drawn = own._pattern(length, None, torch.device("cpu")).blocks[0, :, 1:-1, 5:].numpy()
        other._bigbird_block_rand_mask_with_head = lambda drawn=drawn, **_: list(drawn)
    x, padding = words(length), padded(length, beyond)
    found, expected = ours(x, Context(padding=padding)), source(x, attention_mask=padding.long()).logits
    agree(found[padding], expected[padding])


@pytest.mark.parametrize("length", [8, 24, 40])
@torch.no_grad()
def test_reformer_where_both_hash_by_the_same_matrix(
    transformers: Any, monkeypatch: pytest.MonkeyPatch, length: int
) -> None:
    source = shaken(transformers.ReformerModelWithLMHead(_reformer(transformers)))
    fields = {"heads": H, "chunk": 8, "rounds": 3, "buckets": 8, "factorised": False, "head_rotations": False}
    ours = load_published("reformer", source.state_dict(), "reformer", **fields)
    rotations, x = torch.randn(C // H, 3, 4, dtype=torch.float64), words(length)
    monkeypatch.setattr(LshAttention, "_rotations", lambda *_: rotations)
    found = ours(x)
    monkeypatch.setattr(torch, "randn", lambda shape, **_: rotations.expand(shape))
    # Its newest release no longer adds the bias that its weights hold.
    agree(found, source(x).logits + source.lm_head.bias)


@pytest.mark.parametrize("causal", [True, False])
@torch.no_grad()
def test_reformer_attention_that_looks_back_hashes_by_head_and_fills_chunks(
    transformers: Any, monkeypatch: pytest.MonkeyPatch, causal: bool
) -> None:
    config = _reformer(transformers)
    config.is_decoder = causal
    theirs = shaken(transformers.models.reformer.modeling_reformer.LSHSelfAttention(config))
    released = {"look": "back", "head_rotations": True, "padding": "fills", "scale": False, "key_eps": 1e-6}
    sizes = {"heads": H, "chunk": 8, "rounds": 3, "buckets": 8}
    ours = LshAttention(LshAttentionConfig(dim=C, causal=causal, **sizes, **released)).double().eval()
    ours.query_value.weight.copy_(torch.cat([theirs.query_key.weight, theirs.value.weight]))
    ours.output.weight.copy_(torch.eye(C))
    rotations = torch.randn(H, C // H, 3, 4, dtype=torch.float64)
    x, padding = torch.randn(2, 40, C, dtype=torch.float64), padded(40, 15)
    monkeypatch.setattr(LshAttention, "_rotations", lambda *_: rotations)
    found = ours(x, Context(padding=padding))
    monkeypatch.setattr(torch, "randn", lambda shape, **_: rotations)
    agree(found[padding], theirs(x, attention_mask=padding).hidden_states[padding])


def _reformer(transformers: Any, layers: tuple[str, ...] = ("lsh", "lsh")) -> Any:
    return transformers.ReformerConfig(
        vocab_size=V,
        hidden_size=C,
        num_attention_heads=H,
        attention_head_size=C // H,
        feed_forward_size=40,
        axial_pos_embds_dim=(4, 12),
        axial_pos_shape=(4, 10),
        attn_layers=list(layers),
        num_buckets=8,
        num_hashes=3,
        lsh_attn_chunk_length=8,
        local_attn_chunk_length=8,
        is_decoder=True,
        max_position_embeddings=40,
        layer_norm_eps=1e-5,
        eos_token_id=0,
        pad_token_id=0,
    )


def test_layers_that_are_not_of_the_architecture_are_refused(transformers: Any) -> None:
    weights = transformers.ReformerModelWithLMHead(_reformer(transformers, ("lsh", "local"))).state_dict()
    message = r"'encoder.layers.1.attention.self_attention.query.weight' \[16, 16\] has no place in this layout"
    with pytest.raises(UsageError, match=message):
        load_published("reformer", weights, "reformer", heads=H)


def test_a_head_that_has_no_counterpart_is_refused(transformers: Any) -> None:
    source = transformers.BigBirdForSequenceClassification(transformers.BigBirdConfig(**BERT))
    with pytest.raises(UsageError, match=r"'classifier.out_proj.weight' \[2, 16\] has no place"):
        load_published("bigbird", source.state_dict(), "bigbird", heads=H)


def test_a_model_with_a_decoder_is_none_without(transformers: Any) -> None:
    weights = transformers.FunnelModel(transformers.FunnelConfig(**FUNNEL, block_sizes=[1, 1, 1])).state_dict()
    message = r"'decoder.layers.0.attention.r_w_bias' \[4, 4\] is for body.0.decoder.0.of.0.content_bias, which the"
    with pytest.raises(UsageError, match=message):
        load_published("funnel", weights, "funnel")


@pytest.mark.parametrize(
    ("name", "layout", "model", "sizes", "differs"),
    [
        ("transformer_encoder", "bert", "BertForMaskedLM", {}, []),
        ("transformer_decoder", "gpt2", "GPT2LMHeadModel", {}, []),
        ("transformer_modern", "llama", "LlamaForCausalLM", {}, []),
        ("vit", "vit", "ViTForImageClassification", {"num_labels": 1000}, []),
        ("bigbird", "bigbird", "BigBirdForMaskedLM", {}, []),
        # Its one kind of segment is a vector that is added everywhere.
        ("longformer", "longformer", "LongformerForMaskedLM",
         {"vocab_size": 50265, "max_position_embeddings": 4098, "type_vocab_size": 1}, ["segments"]),
    ],
)  # fmt: skip
def test_the_zoo_has_the_sizes_of_released_weights(
    transformers: Any, name: str, layout: str, model: str, sizes: dict, differs: list[str]
) -> None:
    kind = getattr(transformers, model)
    with torch.device("meta"):
        shapes = {key: value.shape for key, value in kind(kind.config_class(**sizes)).state_dict().items()}
    # Llama's logits have a table of their own, so it holds something else.
    own = "lm_head.weight" if layout == "llama" else None
    weights = {key: torch.full((), float(key == own)).expand(shape) for key, shape in shapes.items()}
    architecture = published_architecture(name, weights, layout)
    assert [difference.path for difference in diff(zoo.load(name), architecture)] == differs


def _all(module: nn.Module, kind: type) -> list[Any]:
    return [block for block in module.modules() if isinstance(block, kind)]


def _replaced(name: str, names: dict[str, str]) -> str:
    for old, new in names.items():
        name = name.replace(old, new)
    return name
