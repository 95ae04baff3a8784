"""Compressive attention against its algorithm: segment after segment, each query with an explicit list of keys."""

import pytest
import torch
from torch.nn import functional as F

from searchspace.contract import Context, Given, Streams
from searchspace.cost import Shape
from searchspace.language import schema
from searchspace.model.architecture import Architecture
from searchspace.model.build import build, cost
from searchspace.primitives.attention.compressive_attention import CompressiveAttention, CompressiveAttentionConfig
from searchspace.primitives.attention.relative_attention import RelativeAttention, RelativeAttentionConfig
from searchspace.registry import configure
from searchspace.tree import Block


def _waves(distance, C):
    angles = distance * 10000.0 ** (-2 * torch.arange(C // 2, dtype=torch.float64) / C)
    return torch.cat([angles.sin(), angles.cos()])


def _compressed(block, states, real):
    """(the result of c states, whether it is real)."""
    kind = block.config.compression
    if kind == "convolution":
        row = [state if there else torch.zeros_like(state) for state, there in zip(states, real, strict=True)]
        return block.compression.map.weight @ torch.cat(row) + block.compression.map.bias, any(real)
    chosen = [state for state, there in zip(states, real, strict=True) if there]
    if not chosen:
        return torch.zeros_like(states[0]), False
    stacked = torch.stack(chosen)
    return (stacked.mean(0) if kind == "mean" else stacked.amax(0)), True


def _attended(block, q, keys, values):
    """One query of all heads, content alone, with maps that are constant: [C]."""
    H = block.config.heads
    Wq, Wk, Wv = (block.query.weight.detach(), *block.key_value.weight.detach().chunk(2))
    query = (Wq @ q).view(H, -1)
    heads = [(Wk @ y).view(H, -1) for y in keys]
    scores = torch.stack([(query * k).sum(1) for k in heads]) / query.shape[1] ** 0.5
    weights = scores.softmax(0)[:, :, None]
    return (weights * torch.stack([(Wv @ y).view(H, -1) for y in values])).sum(0).flatten()


def _by_distance(block, q, distance):
    """The part of the scores of one query, [H, D], that depends on the distance: [H]."""
    if block.config.distances == "learned":  # the vector of distance 0 is the last one
        return (q * block.scores.table[:, -1 - distance]).sum(1)
    v = block.scores.position_bias[:, 0]
    return ((q + v) * (block.scores.distance.weight @ _waves(distance, q.numel())).view(q.shape)).sum(1)


def _plain(block, x, padding=None, norm=None, constant=None):
    """(out, the mean of the squared errors of reconstruction or None).

    x is what enters `norm`; `constant` is the same norm with constant parameters.
    """
    norm, constant = norm or (lambda y: y), constant or (lambda y: y)
    raw = block.config.compress == "raw"
    config, (B, T, C) = block.config, x.shape
    H, D = config.heads, C // config.heads
    Wk, Wv = block.key_value.weight.chunk(2)
    learned = config.distances == "learned"
    u = torch.zeros(H, D) if learned else block.scores.content_bias[:, 0]
    rows, errors = [], []
    for b in range(B):
        memory, packed = [], []  # of (state, whether it is real)
        for start in range(0, T, config.segment):
            places = range(start, min(T, start + config.segment))
            own = [(x[b, t], padding is None or bool(padding[b, t])) for t in places]
            before = [(norm(y) if raw else y, there) for y, there in packed] + [(norm(y), there) for y, there in memory]
            normed = [(norm(y), there) for y, there in own]
            for i, (state, _) in enumerate(normed):
                keys = [
                    (key, len(before) + i - index)
                    for index, (key, there) in enumerate(before + normed[: i + 1])
                    if there
                ]
                if not keys:
                    rows.append(torch.zeros(C, dtype=x.dtype))
                    continue
                q = (block.query.weight @ state).view(H, D)
                scores = [
                    ((q + u) * (Wk @ key).view(H, D)).sum(1) + _by_distance(block, q, distance)
                    for key, distance in keys
                ]
                weights = (torch.stack(scores) / D**0.5).softmax(0)
                values = torch.stack([(Wv @ key).view(H, D) for key, _ in keys])
                rows.append((weights[:, :, None] * values).sum(0).flatten())
            if len(own) < config.segment:
                break
            memory += [(state.detach(), there) for state, there in own]
            fallen = memory[: max(0, len(memory) - config.memory)]
            memory = memory[len(fallen) :]
            leaving = fallen if raw else [(constant(y), there) for y, there in fallen]
            new = [
                _compressed(block, *zip(*leaving[i : i + config.rate], strict=True))
                for i in range(0, len(fallen), config.rate)
            ]
            packed = (packed + [(state.detach(), there) for state, there in new])[-config.compressed :]
            if fallen:
                old = [constant(state) for state, there in fallen if there]
                less = [constant(state) if raw else state for state, there in new if there]
                for state, there in own:
                    if there:
                        h = constant(state.detach())
                        ends = [_attended(block, h, y, y) if y else torch.zeros(C) for y in (old, less)]
                        errors.append((ends[0] - ends[1]).square().mean())
    out = F.linear(torch.stack(rows).view(B, T, C), block.output.weight, block.output.bias)
    return out, torch.stack(errors).mean() if errors else None


def _block(**fields):
    torch.default_generator.manual_seed(1)
    fields = {"dim": 8, "heads": 2, "segment": 4, "memory": 4, "compressed": 3, **fields}
    block = CompressiveAttention(CompressiveAttentionConfig(**fields)).double()
    with torch.no_grad():
        for parameter in block.scores.parameters():
            parameter.copy_(torch.randn_like(parameter))
    return block.eval()


def _x(length, batch=2):
    return torch.randn(batch, length, 8, dtype=torch.float64)


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"compression": "mean"},
        {"compression": "max"},
        {"rate": 1, "compressed": 5},
        {"rate": 4, "compressed": 1},
        {"memory": 0},
        {"memory": 6},
        {"memory": 2, "compressed": 20},
        {"segment": 2, "memory": 8, "reconstruction_weight": 0.3},
        {"segment": 6, "memory": 6, "rate": 3},
        {"reconstruction_weight": 0.01},
        {"distances": "learned", "output_bias": True},  # lucidrains/compressive-transformer-pytorch
        {"distances": "learned", "memory": 6, "compression": "mean"},
    ],
    ids=str,
)
@pytest.mark.parametrize("length", [4, 19])
@pytest.mark.parametrize("padded", [False, True])
def test_equals_its_algorithm_with_its_loss_and_all_gradients(length, padded, fields):
    block, x = _block(**fields), _x(length).requires_grad_()
    padding = torch.rand(2, length) < 0.7 if padded else None
    context = Context(padding=padding)
    found, (expected, error) = block(x, context), _plain(block, x, padding)
    weights = torch.randn_like(x) * (1 if padding is None else padding[:, :, None])
    torch.testing.assert_close(found * (weights != 0), expected * (weights != 0), atol=1e-9, rtol=1e-9)
    totals = [(out * weights).sum() for out in (found, expected)]
    if context.losses:
        wanted = block.config.reconstruction_weight * (0 if error is None else error)
        torch.testing.assert_close(context.loss(), wanted + torch.zeros_like(context.loss()), atol=1e-9, rtol=1e-9)
        totals = [totals[0] + context.loss(), totals[1] + wanted]
    else:
        assert error is None or not block.config.reconstructs
    inputs = [x, *block.parameters()]
    gradients = [torch.autograd.grad(total, inputs, materialize_grads=True) for total in totals]
    torch.testing.assert_close(*gradients, atol=1e-9, rtol=1e-9)


def _behind_a_norm(**fields):
    torch.default_generator.manual_seed(1)
    of = Block("compressive_attention", {"heads": 2, "segment": 4, "memory": 4, "compressed": 3, **fields})
    tree = schema.complete(Block("residual", {"norm": Block("layer_norm", {}), "of": (of,)}))
    residual = configure(tree, Given(dim=8, causal=True)).build().double().eval()
    with torch.no_grad():
        for parameter in [*residual.norm.parameters(), *residual.of[0].scores.parameters()]:
            parameter.copy_(torch.randn_like(parameter))
    return residual


def _read_behind_a_norm(residual, x, padding=None):
    gain, bias = residual.norm.parameters()

    def norm(y):
        return F.layer_norm(y, (8,), gain, bias)

    def constant(y):
        return F.layer_norm(y, (8,), gain.detach(), bias.detach())

    out, error = _plain(residual.of[0], x, padding, norm, constant)
    return x + out, error


@pytest.mark.parametrize("compress", ["normed", "raw"])
@pytest.mark.parametrize("fields", [{}, {"memory": 6, "rate": 1}, {"compression": "max", "memory": 0}], ids=str)
@pytest.mark.parametrize("padded", [False, True])
def test_behind_a_norm_the_memory_holds_what_enters_it(compress, fields, padded):
    """`raw` is labml's form: the norm comes after the compression, and is constant in the loss."""
    residual, x = _behind_a_norm(compress=compress, **fields), _x(19).requires_grad_()
    padding = torch.rand(2, 19) < 0.7 if padded else None
    context = Context(padding=padding)
    found, (expected, error) = residual(x, context), _read_behind_a_norm(residual, x, padding)
    weights = torch.randn_like(x) * (1 if padding is None else padding[:, :, None])
    torch.testing.assert_close(found * (weights != 0), expected * (weights != 0), atol=1e-9, rtol=1e-9)
    totals = [(out * weights).sum() for out in (found, expected)]
    if context.losses:
        totals = [totals[0] + context.loss(), totals[1] + error]
    inputs = [x, *residual.parameters()]
    gradients = [torch.autograd.grad(total, inputs, materialize_grads=True) for total in totals]
    torch.testing.assert_close(*gradients, atol=1e-9, rtol=1e-9)


@pytest.mark.parametrize("compress", ["normed", "raw"])
def test_pieces_of_training_behind_a_norm_are_one_long_input(compress):
    residual, x = _behind_a_norm(compress=compress, memory=6).train(), _x(24).requires_grad_()
    weights, context = torch.randn_like(x), Context()
    whole, (fed, losses, _) = residual(x, context), _fed(residual, x, [4] * 6)
    torch.testing.assert_close(fed, whole, atol=1e-12, rtol=1e-12)
    own = list(residual.of[0].compression.parameters())
    inputs = [x, *residual.norm.parameters(), residual.of[0].key_value.weight]
    gradients = [torch.autograd.grad((out * weights).sum(), inputs) for out in (fed, whole)]
    torch.testing.assert_close(*gradients, atol=1e-12, rtol=1e-12)
    gradients = [torch.autograd.grad(one, own) for one in (torch.stack(losses).mean(), context.loss())]
    torch.testing.assert_close(*gradients, atol=1e-12, rtol=1e-12)
    for train in (True, False):
        with torch.no_grad():
            streamed, _, _ = _fed(residual.train(train), x, [1, 1, 5, 1, 9, 7])
        torch.testing.assert_close(streamed, whole, atol=1e-12, rtol=1e-12)


def test_layers_share_their_learned_distances_if_told_to():
    text = "kind: decoder\nwidth: 8\nvocabulary: 5\nposition: none\nbody: {{repeat: {{times: 3, of: {of}}}}}\n"
    sizes = {}
    for share in ("true", "false"):
        of = f"{{compressive_attention: {{heads: 2, distances: learned, share_biases: {share}}}}}"
        architecture = Architecture.parse(text.format(of=of))
        sizes[share] = cost(architecture).parameters
        assert sizes[share] == sum(parameter.numel() for parameter in build(architecture).parameters())
    assert sizes["false"] - sizes["true"] == 2 * 48 * 8


def test_the_task_teaches_everything_but_the_compression_and_the_loss_nothing_else():
    block, x, context = _block(), _x(23).requires_grad_(), Context()
    y = block(x, context)
    own = set(block.compression.parameters())
    inputs = [x, *block.parameters()]
    by_task = torch.autograd.grad(y.square().sum(), inputs, allow_unused=True, retain_graph=True)
    by_loss = torch.autograd.grad(context.loss(), inputs, allow_unused=True)
    for value, task, loss in zip(inputs, by_task, by_loss, strict=True):
        assert (task is None) == (value in own)
        assert (loss is None) == (value not in own)


@pytest.mark.parametrize("kind", ["mean", "convolution"])
def test_a_rate_of_one_is_a_longer_memory(kind):
    block = _block(rate=1, compressed=5, compression=kind)
    longer = RelativeAttention(RelativeAttentionConfig(dim=8, causal=True, heads=2, segment=4, memory=9)).double()
    state = block.state_dict()
    longer.load_state_dict({name: value for name, value in state.items() if "compression" not in name})
    if kind == "convolution":
        with torch.no_grad():
            block.compression.map.weight.copy_(torch.eye(8))
            block.compression.map.bias.zero_()
    x, context = _x(30), Context()
    torch.testing.assert_close(block(x, context), longer(x, Context()), atol=1e-12, rtol=1e-12)
    if kind == "convolution":
        assert context.loss() < 1e-24


def _fed(block, x, pieces):
    streams, outs, losses = Streams(), [], []
    for piece in x.split(pieces, dim=1):
        streams.rewind()
        context = Context(streams=streams)
        outs.append(block(piece, context))
        losses += context.losses.get("reconstruction", [])
        streams.length += piece.shape[1]
    return torch.cat(outs, dim=1), losses, streams


@pytest.mark.parametrize("memory", [4, 6, 0])
@pytest.mark.parametrize("pieces", [[4] * 6, [8, 4, 12], [24]], ids=str)
def test_training_segment_by_segment_is_training_on_one_long_input(pieces, memory):
    block, x = _block(memory=memory).train(), _x(24).requires_grad_()
    weights, context = torch.randn_like(x), Context()
    inputs = [x, *(p for name, p in block.named_parameters() if "compression" not in name)]
    whole, (fed, losses, _) = block(x, context), _fed(block, x, pieces)
    torch.testing.assert_close(fed, whole, atol=1e-12, rtol=1e-12)
    gradients = [torch.autograd.grad((out * weights).sum(), inputs) for out in (fed, whole)]
    torch.testing.assert_close(*gradients, atol=1e-12, rtol=1e-12)
    if len(set(pieces)) == 1:  # as many segments in each: the mean of their means is the mean of all
        loss = torch.stack(losses).mean()
        torch.testing.assert_close(loss, context.loss(), atol=1e-12, rtol=1e-12)
        own = list(block.compression.parameters())
        gradients = [torch.autograd.grad(one, own) for one in (loss, context.loss())]
        torch.testing.assert_close(*gradients, atol=1e-12, rtol=1e-12)


@pytest.mark.parametrize("train", [False, True])
@pytest.mark.parametrize("kind", ["convolution", "mean", "max"])
@pytest.mark.parametrize("distances", ["waves", "learned"])
def test_ragged_pieces_read_what_one_long_input_does(kind, train, distances):
    block, x = _block(compression=kind, memory=6, segment=6, distances=distances).train(train), _x(47)
    with torch.no_grad():
        found, losses, streams = _fed(block, x, [1, 1, 1, 3, 7, 1, 13, 1, 1, 18])
        torch.testing.assert_close(found, block(x, Context()), atol=1e-12, rtol=1e-12)
    assert not losses
    assert set(next(iter(streams.slots.values()))) == (
        {"inputs", "packed"} if train else {"k", "v", "waiting_k", "waiting_v", "group"}
    )


def test_work_grows_with_the_length_and_the_state_does_not():
    config = CompressiveAttentionConfig(dim=16)
    costs = [CompressiveAttention.cost(config, Shape(length=length)) for length in (1024, 2048, 3072)]
    assert costs[2].flops - costs[1].flops == costs[1].flops - costs[0].flops
    assert {one.state_bytes for one in costs} == {2 * (16 + 16 + 8) * 16 * 4}


def test_says_what_does_not_fit():
    for fields, message in (
        ({"heads": 3}, "dim must be a multiple of heads"),
        ({"dim": 9, "heads": 3}, "dim must be even, but got 9"),
        ({"segment": 5}, "segment must be a multiple of rate.* got segment=5, rate=2"),
        ({"memory": 3}, "memory must be a multiple of rate.* got memory=3, rate=2"),
        ({"compressed": 0}, "compressed must be at least 1, but got 0"),
        ({"reconstruction_weight": -1.0}, "reconstruction_weight must not be negative, but got -1.0"),
        ({"reconstruction_weight": 0.0}, "a compression by convolution learns only from this loss"),
    ):
        with pytest.raises(ValueError, match=message):
            CompressiveAttentionConfig(**{"dim": 8, **fields})
