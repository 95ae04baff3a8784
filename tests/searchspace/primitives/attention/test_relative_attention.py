"""Relative attention against its formula: one query after the other, each with the set of keys it may read."""

import pytest
import torch
from torch.nn import functional as F
from torch.utils.flop_counter import FlopCounterMode

from searchspace import zoo
from searchspace.contract import Context, Given, Streams
from searchspace.cost import Shape
from searchspace.language import schema
from searchspace.model.architecture import Architecture
from searchspace.model.build import build, cost
from searchspace.primitives.attention import relative_scores
from searchspace.primitives.attention.relative_attention import RelativeAttention, RelativeAttentionConfig
from searchspace.primitives.attention.relative_scores import RelativeScores
from searchspace.registry import configure
from searchspace.tree import Block


def _readable(config, t, T):
    """(own, memory): the places in its segment and before it that position t reads."""
    if not config.causal:
        return list(range(T)), []
    segment = config.segment or T
    start = t - t % segment
    first = -config.memory if config.initial == "zeros" else 0  # places before 0 hold zeros
    own, memory = list(range(start, t + 1)), list(range(max(first, start - config.memory), start))
    if config.same_length == "with_query":  # mem_len of the released code counts the query itself
        own, memory = ([j for j in places if t - j < config.memory] for places in (own, memory))
    elif config.same_length:
        own, memory = ([j for j in places if t - j <= config.memory] for places in (own, memory))
    return own, memory


def _waves(distance, C):
    angles = distance * 10000.0 ** (-2 * torch.arange(C // 2, dtype=torch.float64) / C)
    return torch.cat([angles.sin(), angles.cos()])


def _plain(block, x, padding=None, norm=None):
    """x is what enters `norm`, as in the released code, which norms memory and input together."""
    norm = norm or (lambda state: state)
    config, (B, T, C) = block.config, x.shape
    H, D = config.heads, C // config.heads
    Wk, Wv = block.key_value.weight.chunk(2)
    u, v = block.scores.content_bias[:, 0], block.scores.position_bias[:, 0]
    rows = []
    for b in range(B):
        for t in range(T):
            own, memory = _readable(config, t, T)
            real = [(j, j in memory) for j in memory + own if padding is None or j < 0 or padding[b, j]]
            if not real:
                rows.append(torch.zeros(C, dtype=x.dtype))
                continue
            kept = torch.cat([x[b].detach(), x.new_zeros(config.memory, C)])  # places before 0 are at its end
            states = [norm(kept[j] if remembered else x[b, j]) for j, remembered in real]
            q = (block.query.weight @ norm(x[b, t])).view(H, D)
            scores = []
            for (j, _), state in zip(real, states, strict=True):
                distance = t - j
                if config.clamp is not None:
                    distance = max(-config.clamp, min(config.clamp, distance))
                r = (block.scores.distance.weight @ _waves(distance, C)).view(H, D)
                scores.append((((q + u) * (Wk @ state).view(H, D)).sum(1) + ((q + v) * r).sum(1)) / D**0.5)
            weights = torch.stack(scores).softmax(0)  # [keys, H]
            values = torch.stack([(Wv @ state).view(H, D) for state in states])
            rows.append((weights[:, :, None] * values).sum(0).flatten())
    return F.linear(torch.stack(rows).view(B, T, C), block.output.weight)


def _block(**fields):
    torch.default_generator.manual_seed(1)
    block = RelativeAttention(RelativeAttentionConfig(**{"dim": 8, "causal": True, "heads": 2, **fields})).double()
    with torch.no_grad():
        for bias in (block.scores.content_bias, block.scores.position_bias):
            bias.copy_(torch.randn_like(bias))  # as they begin they are too small to be missed
    return block.eval()


def _x(length, batch=2):
    return torch.randn(batch, length, 8, dtype=torch.float64)


@pytest.mark.parametrize(
    "fields",
    [
        {"segment": 4, "memory": 4},
        {"segment": 5, "memory": 2},
        {"segment": 2, "memory": 7},
        {"segment": 3, "memory": 0},
        {"segment": 1, "memory": 1},
        {"segment": None},
        {"segment": 50},
        {"segment": 4, "memory": 6, "same_length": True},
        {"segment": None, "memory": 3, "same_length": True},
        {"segment": 4, "memory": 0, "same_length": True},
        {"segment": 4, "memory": 6, "same_length": "with_query"},
        {"segment": None, "memory": 3, "same_length": "with_query"},
        {"segment": 3, "memory": 1, "same_length": "with_query"},
        {"segment": 4, "memory": 3, "initial": "zeros"},
        {"segment": None, "memory": 5, "initial": "zeros"},
        {"segment": 4, "memory": 6, "initial": "zeros", "same_length": "with_query"},
        {"segment": 4, "memory": 6, "clamp": 3},
        {"causal": False},
        {"causal": False, "clamp": 2},
    ],
    ids=str,
)
@pytest.mark.parametrize("length", [1, 4, 11])
def test_equals_its_formula(agrees, length, fields):
    block, x = _block(**fields), _x(length)
    agrees(block, lambda x: _plain(block, x), x)
    padding = torch.rand(2, length) < 0.6
    agrees(block, lambda x: _plain(block, x, padding), x, Context(padding=padding))


def test_without_biases_and_distances_it_is_full_attention():
    for causal in (True, False):
        block, x = _block(causal=causal, segment=None), _x(9)
        with torch.no_grad():
            for parameter in block.scores.parameters():
                parameter.zero_()
        q, k, v = (
            F.linear(x, weight).view(2, 9, 2, 4).transpose(1, 2)
            for weight in (block.query.weight, *block.key_value.weight.chunk(2))
        )
        full = F.scaled_dot_product_attention(q, k, v, is_causal=causal).transpose(1, 2).flatten(2)
        torch.testing.assert_close(block(x, Context()), F.linear(full, block.output.weight), atol=1e-12, rtol=1e-12)


def test_a_memory_of_everything_reads_what_one_segment_reads():
    whole, x = _block(segment=None), _x(23)
    cut = _block(segment=4, memory=23)
    torch.testing.assert_close(cut(x, Context()), whole(x, Context()), atol=1e-12, rtol=1e-12)


def test_no_gradient_reaches_the_memory_but_its_keys_train():
    block, x = _block(segment=4, memory=4), _x(8).requires_grad_()
    y = block(x, Context())
    (gradient,) = torch.autograd.grad(y[:, 4:].square().sum(), x, retain_graph=True)
    assert gradient[:, :4].abs().max() == 0
    assert gradient[:, 4:].abs().max() > 0
    alone = block(x[:, 4:], Context())
    assert not torch.allclose(alone, y[:, 4:])


def _behind_a_norm(name, **fields):
    """A residual that norms before a block, with a gain and a bias that matter."""
    torch.default_generator.manual_seed(1)
    of = Block("relative_attention", {"heads": 2, **fields})
    tree = schema.complete(Block("residual", {"norm": Block(name, {}), "of": (of,)}))
    residual = configure(tree, Given(dim=8, causal=True)).build().double().eval()
    with torch.no_grad():
        for parameter in [*residual.norm.parameters(), *residual.of[0].scores.parameters()]:
            parameter.copy_(torch.randn_like(parameter))
    return residual


@pytest.mark.parametrize("name", ["layer_norm", "rms_norm"])
@pytest.mark.parametrize(
    "fields",
    [
        {"segment": 4, "memory": 6},
        {"segment": 3, "memory": 3, "initial": "zeros"},
        {"segment": 4, "memory": 6, "same_length": "with_query"},
    ],
    ids=str,
)
def test_behind_a_norm_the_memory_holds_what_enters_it(agrees, name, fields):
    """kimiyoung/transformer-xl with pre_lnorm: memory and input are normed together, inside the layer."""
    residual, x = _behind_a_norm(name, **fields), _x(11)

    def plain(x):
        return x + _plain(residual.of[0], x, norm=lambda state: residual.norm(state, Context()))

    agrees(residual, plain, x)


def test_the_norm_learns_from_the_keys_of_the_memory():
    """The memory of the normed inputs gave its gain a gradient that was wrong by a third and more."""
    residual, x = _behind_a_norm("layer_norm", segment=4, memory=8), _x(12)
    weights = torch.randn(2, 4, 8, dtype=torch.float64)
    (found,) = torch.autograd.grad((residual(x, Context())[:, 8:] * weights).sum(), residual.norm.gain)
    normed = residual.norm(x, Context())
    apart = residual.of[0](normed, Context())  # as a block that is not told of the norm
    (without,) = torch.autograd.grad((apart[:, 8:] * weights).sum(), residual.norm.gain)
    assert (found - without).norm() > 0.3 * found.norm()


@pytest.mark.parametrize("initial", ["empty", "zeros"])
def test_pieces_of_training_behind_a_norm_are_one_long_input(initial):
    residual, x = _behind_a_norm("layer_norm", segment=4, memory=6, initial=initial).train(), _x(20).requires_grad_()
    weights, inputs = torch.randn_like(x), [x, *residual.parameters()]
    for pieces in ([4] * 5, [8, 4, 8]):
        whole, (fed, streams) = residual(x, Context()), _fed(residual, x, pieces)
        torch.testing.assert_close(fed, whole, atol=1e-12, rtol=1e-12)
        gradients = [torch.autograd.grad((out * weights).sum(), inputs) for out in (fed, whole)]
        torch.testing.assert_close(gradients[0], gradients[1], atol=1e-12, rtol=1e-12)
        torch.testing.assert_close(next(iter(streams.slots.values()))["inputs"], x[:, -6:].detach(), atol=0, rtol=0)
    with torch.no_grad():
        streamed, _ = _fed(residual.eval(), x, [3, 1, 9, 7])
    torch.testing.assert_close(streamed, whole, atol=1e-12, rtol=1e-12)


def _fed(block, x, pieces):
    streams, outs = Streams(), []
    for piece in x.split(pieces, dim=1):
        streams.rewind()
        outs.append(block(piece, Context(streams=streams)))
        streams.length += piece.shape[1]
    return torch.cat(outs, dim=1), streams


@pytest.mark.parametrize("pieces", [[4] * 5, [8, 4, 8]], ids=str)
def test_training_segment_by_segment_gives_the_gradients_of_one_long_input(pieces):
    block, x = _block(segment=4, memory=6).train(), _x(20).requires_grad_()
    weights, inputs = torch.randn_like(x), [x, *block.parameters()]
    whole, (fed, streams) = block(x, Context()), _fed(block, x, pieces)
    torch.testing.assert_close(fed, whole, atol=1e-12, rtol=1e-12)
    gradients = [torch.autograd.grad((out * weights).sum(), inputs) for out in (fed, whole)]
    torch.testing.assert_close(gradients[0], gradients[1], atol=1e-12, rtol=1e-12)
    assert {name: state.shape for name, state in next(iter(streams.slots.values())).items()} == {"inputs": (2, 6, 8)}


@pytest.mark.parametrize("initial", ["empty", "zeros"])
@pytest.mark.parametrize("same_length", [False, True, "with_query"])
@pytest.mark.parametrize("segment", [4, None])
def test_reads_in_pieces_from_one_table_of_distances(segment, same_length, initial):
    block = _block(segment=segment, memory=5, same_length=same_length, initial=initial)
    with torch.no_grad():
        for batch in (1, 3):
            x = _x(40, batch)
            found, streams = _fed(block, x, [3, 1, 1, 1, 9, 1, 1, 14, 1, 8])
            torch.testing.assert_close(found, block(x, Context()), atol=1e-12, rtol=1e-12)
        block.scores.distance.weight.data.mul_(2)  # a new stream makes a new table
        torch.testing.assert_close(_fed(block, x, [1] * 40)[0], block(x, Context()), atol=1e-12, rtol=1e-12)
    held = {False: 5 if segment else 45 if initial == "zeros" else 40, True: 5, "with_query": 4}[same_length]
    assert {name: state.shape for name, state in next(iter(streams.slots.values())).items()} == dict.fromkeys(
        "kv", (3, 2, held, 4)
    )


@pytest.mark.parametrize("train", [False, True])
def test_a_table_is_never_older_than_the_keys_beside_it(train):
    block, x = _block(segment=4, memory=5).train(train), _x(12)
    with torch.no_grad():
        _fed(block, x, [12])  # leaves a table behind
        block.scores.distance.weight.data.mul_(2)
    streams = Streams()
    for recorded, piece in zip((True, False), x.split([5, 7], dim=1), strict=True):
        streams.rewind()
        with torch.set_grad_enabled(recorded):
            y = block(piece, Context(streams=streams))
        streams.length += piece.shape[1]
    torch.testing.assert_close(y, block(x, Context())[:, 5:], atol=1e-12, rtol=1e-12)
    with torch.no_grad():
        block.scores.distance.weight.data.mul_(2)
        streams.rewind()
        found = block(x[:, :1], Context(streams=streams))
    if train:  # whose keys are made of inputs in every piece
        expected = block(torch.cat([x, x[:, :1]], dim=1), Context())[:, 12:]
        torch.testing.assert_close(found, expected, atol=1e-12, rtol=1e-12)


def test_a_copy_in_another_precision_makes_its_own_table():
    block, x = _block(segment=4, memory=5), _x(9)
    with torch.no_grad():
        _fed(block, x, [9])
        narrow = block.float()
        found, _ = _fed(narrow, x.float(), [1] * 9)
        torch.testing.assert_close(found, narrow(x.float(), Context()))


def test_layers_share_their_biases_if_told_to():
    text = "kind: decoder\nwidth: 8\nvocabulary: 5\nposition: none\nbody: {{repeat: {{times: 3, of: {of}}}}}\n"
    sizes = {}
    for share in ("true", "false"):
        of = f"{{relative_attention: {{heads: 2, share_biases: {share}}}}}"
        architecture = Architecture.parse(text.format(of=of))
        sizes[share] = cost(architecture).parameters
        assert sizes[share] == sum(parameter.numel() for parameter in build(architecture).parameters())
    assert sizes["false"] - sizes["true"] == 2 * 2 * 8


def test_work_grows_with_the_length_and_the_state_does_not():
    config = RelativeAttentionConfig(dim=16, causal=True, segment=32, memory=64)
    costs = [RelativeAttention.cost(config, Shape(length=length)) for length in (1024, 2048, 3072)]
    assert costs[2].flops - costs[1].flops == costs[1].flops - costs[0].flops
    assert {one.state_bytes for one in costs} == {2 * 64 * 16 * 4}


def test_says_what_does_not_fit():
    for fields, message in (
        ({"heads": 3}, "dim must be a multiple of heads"),
        ({"dim": 9, "heads": 3}, "dim must be even, but got 9"),
        ({"segment": 0}, "segment must be at least 1, but got 0"),
        ({"memory": -1}, "memory must be at least 0, but got -1"),
        ({"memory": 0, "same_length": "with_query"}, "memory must be at least 1, but got 0"),
        ({"clamp": 0}, "clamp must be at least 1, but got 0"),
        ({"dropout": 1.0}, "dropout must lie in"),
    ):
        with pytest.raises(ValueError, match=message):
            RelativeAttentionConfig(**{"dim": 8, **fields})


@pytest.mark.parametrize(("size", "millions"), [("base", 151), ("enwik8", 41)])
def test_the_published_models_have_the_size_that_their_paper_says(size, millions):
    assert round(cost(zoo.load("transformer_xl", size)).parameters / 1e6) == millions


def test_a_few_groups_at_a_time_read_what_all_at_once_do(agrees, monkeypatch):
    monkeypatch.setattr(relative_scores, "CPU_SCORES", 100)
    for fields in ({"segment": 4, "memory": 4}, {"segment": None}, {"causal": False}):
        block, x = _block(**fields), _x(11)
        agrees(block, lambda x: _plain(block, x), x)  # noqa: B023
        padding = torch.rand(2, 11) < 0.6
        agrees(block, lambda x: _plain(block, x, padding), x, Context(padding=padding))  # noqa: B023


@torch.no_grad()
@pytest.mark.parametrize("scores", [1, 3 * 40 * 2, 10**9])
def test_scores_of_some_heads_at_a_time_are_the_same(scores: int, monkeypatch: pytest.MonkeyPatch) -> None:
    module = RelativeScores(12, 4, clamp=None, share=False).double()
    q, k, v = (torch.randn(2, 4, length, 3, dtype=torch.float64) for length in (3, 40, 40))
    allowed = torch.rand(2, 1, 3, 40) < 0.5
    distances = module.distances(3, 40, q)
    expected = module._read(q, k, v, distances, allowed, 0.0, False)
    monkeypatch.setattr(relative_scores, "CPU_SCORES", scores)
    found = module(q, k, v, distances, allowed, dropout=0.0, may_be_empty=False)
    torch.testing.assert_close(found, expected, atol=1e-12, rtol=1e-12)


@pytest.mark.parametrize("batch", [1, 2])
def test_a_mask_of_the_newest_keys_is_one_of_all_keys(batch: int) -> None:
    module = RelativeScores(12, 4, clamp=None, share=False).double()
    q, k, v = (torch.randn(batch, 4, length, 3, dtype=torch.float64) for length in (5, 9, 9))
    late = torch.ones(1, 1, 5, 5, dtype=torch.bool).tril()
    for recorded in (True, False):
        with torch.set_grad_enabled(recorded):
            r = module.distances(5, 9, q)
            found, expected = (
                module(q, k, v, r, allowed, dropout=0.0, may_be_empty=False)
                for allowed in (late, F.pad(late, (4, 0), value=True))
            )
        torch.testing.assert_close(found, expected, atol=0, rtol=0)


@pytest.mark.parametrize("lengths", [(5, 9), (5, 5), (1, 9)], ids=str)
def test_without_gradients_it_computes_and_counts_the_same(lengths: tuple[int, int]) -> None:
    module = RelativeScores(12, 4, clamp=None, share=False).double()
    q, k, v = (torch.randn(1, 4, length, 3, dtype=torch.float64) for length in (lengths[0], lengths[1], lengths[1]))
    given, outs, flops = (q.clone(), k.clone(), v.clone()), [], []
    for recorded in (True, False):
        with torch.set_grad_enabled(recorded), FlopCounterMode(display=False) as counter:
            outs.append(module(q, k, v, module.distances(*lengths, q), None, dropout=0.0, may_be_empty=False))
        flops.append(counter.get_total_flops())
    torch.testing.assert_close(outs[0], outs[1], atol=1e-12, rtol=1e-12)
    assert flops[0] == flops[1]
    torch.testing.assert_close((q, k, v), given, atol=0, rtol=0)


def test_a_stream_in_mixed_precision_reads_what_the_whole_does() -> None:
    block, x = _block(segment=8, memory=5).float(), _x(24, batch=1).float()
    expected = block(x, Context())
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
        found, _ = _fed(block, x, [8, 8, 3, 1, 4])
    torch.testing.assert_close(found.float(), expected, atol=0.05, rtol=0.05)
