"""What every primitive promises, held against every registered one; a new primitive is tested with no line added."""

import copy
import functools
import math
import pickle
from dataclasses import FrozenInstanceError, fields, is_dataclass, replace

import pytest
import torch

from searchspace.contract import Choices, Context, Given, Streams
from searchspace.cost import Shape
from searchspace.registry import block_types
from searchspace.testing import count_flops, examples, kept_bytes, peak_bytes, primitives, scalar_defaults

B, C, S = 2, 16, 5  # batch, width, positions of the memory
LENGTHS = (1, 2, 7, 131)  # 131 is longer than every default window and chunk, and fits none of them evenly


def _cases(causal):
    """(id, configured block) of every primitive at its defaults and with each field varied."""
    for role in ("block", "norm", "position"):
        for kind in primitives(role):
            for varied, configured in examples(kind, Given(dim=C, causal=causal, memory=True)):
                yield pytest.param(configured, id=f"{role}-{kind.name}-{varied}-{'causal' if causal else 'both_ways'}")


CAUSAL = [case for case in _cases(True) if case.values[0].type.module.capabilities.causal]
BOTH_WAYS = [
    case
    for case in _cases(False)
    if "causal" in case.values[0].type.given and case.values[0].type.module.capabilities.bidirectional
]
STREAMING = [case for case in CAUSAL if case.values[0].type.module.capabilities.streaming]
POSITIONS = [case for case in CAUSAL if case.id.startswith("position")]
DEFAULTS = [case for case in CAUSAL + BOTH_WAYS if "-defaults-" in case.id]
# A configuration may say that it lets padding through, as some released code does.
HIDING_PADDING = [case for case in CAUSAL + BOTH_WAYS if getattr(case.values[0].config, "hides_padding", True)]
# Compiled and exported in groups: what a call of the compiler takes, whatever it compiles, is a third of the time.
GROUPS = [DEFAULTS[start : start + 8] for start in range(0, len(DEFAULTS), 8)]
KINDS = [kind for role in ("block", "norm", "position") for kind in primitives(role)]


def _every(cases):
    """Run a test with every configuration of a block, one after the other: one test a block, not one a configuration.

    pytest's own work for a test takes longer than most checks here. A failure names the configuration.
    """
    blocks = {}
    for case in cases:
        kind, ways = case.values[0].type, case.id.rpartition("-")[2]
        blocks.setdefault(f"{kind.role}-{kind.name}-{ways}", []).append(case)

    def decorate(test):
        @functools.wraps(test)
        def test_of_a_block(cases):
            for case in cases:
                torch.default_generator.manual_seed(0)
                try:
                    test(case.values[0])
                except BaseException as error:
                    error.add_note(f"in {case.id}")
                    raise

        del test_of_a_block.__wrapped__  # pytest would ask for its parameters
        return pytest.mark.parametrize("cases", blocks.values(), ids=blocks)(test_of_a_block)

    return decorate


def _named(cases):
    return "+".join(case.id.replace("-defaults", "") for case in cases)  # so that -k finds the group of a block


@pytest.fixture(autouse=True)
def _seed():
    torch.default_generator.manual_seed(0)


def _built(configured, dtype=torch.float64):
    return configured.build().to(dtype).eval()


def _input(length, dtype=torch.float64, batch=B):
    return torch.randn(batch, length, C, dtype=dtype)


def _context(x, **values):
    """The context a model makes: positions that follow what a stream has read, and an encoder's output."""
    streams = values.get("streams")
    start = streams.length if streams else 0
    generator = torch.Generator().manual_seed(1)
    memory = torch.randn(x.shape[0], S, C, generator=generator, dtype=torch.float64).to(x.dtype)
    values.setdefault("memory", memory)
    positions = torch.arange(start, start + x.shape[1])
    return Context(positions=positions, segments=(positions // 4 % 2).expand(x.shape[0], -1), **values)


def _choices(configured):
    """The choices by content of a block's first call, to be repeated in later calls."""
    return Choices() if configured.type.module.capabilities.selects else None


def _again(choices):
    if choices is not None:
        choices.rewind()
    return choices


@torch.no_grad()
def _stream(block, x, pieces, streams=None, position=None):
    """Read x in pieces of these lengths, as a model does that generates."""
    streams = Streams() if streams is None else streams
    outs = []
    for piece in x.split(pieces, dim=1):
        streams.rewind()
        outs.append(block(piece, _context(piece, streams=streams, position=position)))
        streams.length += piece.shape[1]
    return torch.cat(outs, dim=1), streams


@_every(CAUSAL + BOTH_WAYS)
def test_keeps_shape_and_dtype_at_any_length(configured):
    block = _built(configured)
    for dtype in (torch.float64, torch.float32):
        block = block.to(dtype)
        for length in LENGTHS if dtype == torch.float64 else (7,):  # the other tests of float32 have other lengths
            x = _input(length, dtype)
            y = block(x, _context(x))
            assert (y.shape, y.dtype) == (x.shape, x.dtype)
            assert y.isfinite().all()


@_every(DEFAULTS)
def test_builds_without_memory(configured):
    """So that parameters can be counted for models that would not fit into memory."""
    with torch.device("meta"):
        assert all(value.is_meta for value in configured.build().parameters())


@_every(CAUSAL)
def test_nothing_of_the_future_reaches_the_past(configured):
    block = _built(configured)
    for length, cut in ((7, 3), (131, 70)):
        x = _input(length)
        changed, choices = torch.cat([x[:, :cut], _input(length - cut) * 9], dim=1), _choices(configured)
        expected = block(x, _context(x, choices=choices))[:, :cut]
        found = block(changed, _context(x, choices=_again(choices)))[:, :cut]
        torch.testing.assert_close(found, expected, atol=1e-12, rtol=1e-12)
        x.requires_grad_()
        early = block(x, _context(x))[:, :cut]
        if early.requires_grad:
            (gradient,) = torch.autograd.grad((early * torch.randn_like(early)).sum(), x)
            assert gradient[:, cut:].abs().max() == 0


@_every(BOTH_WAYS)
def test_what_may_look_both_ways_sees_as_much_ahead_as_behind(configured):
    block, x = _built(configured), _input(9).requires_grad_()
    middle = block(x, _context(x))[:, 4]
    (gradient,) = torch.autograd.grad((middle * torch.randn_like(middle)).sum(), x)
    seen = gradient.abs().sum((0, 2)) > 0
    if getattr(configured.config, "directions", "both") == "forward":
        assert not seen[5:].any()
    else:
        assert seen.tolist() == seen.flip(0).tolist()


@_every(HIDING_PADDING)
def test_padded_values_change_nothing_at_real_positions(configured):
    block, x = _built(configured), _input(11)
    padding = torch.ones(B, 11, dtype=torch.bool)
    padding[0, 8:] = padding[1, 2:4] = False
    memory_padding = torch.tensor([[True] * S, [True] * 3 + [False] * 2])
    context = replace(_context(x, padding=padding), memory_padding=memory_padding)
    memory = torch.where(memory_padding[:, :, None], context.memory, torch.full_like(context.memory, 7.0))
    changed = torch.where(padding[:, :, None], x, _input(11) * 9)
    expected = block(x, context)
    found = block(changed, replace(context, memory=memory))
    torch.testing.assert_close(found[padding], expected[padding], atol=1e-12, rtol=1e-12)
    alone = block(x[:1, :8], _context(x[:1, :8], memory=context.memory[:1]))
    torch.testing.assert_close(expected[:1, :8], alone, atol=1e-12, rtol=1e-12)


@_every(CAUSAL + BOTH_WAYS)
def test_a_wholly_padded_sequence_and_memory_give_no_nan(configured):
    block, x = _built(configured), _input(5).requires_grad_()
    context = replace(_context(x, padding=torch.zeros(B, 5, dtype=torch.bool)))
    context.memory_padding = torch.zeros(B, S, dtype=torch.bool)
    y = block(x, context)
    y.sum().backward()
    assert y.isfinite().all()
    assert all(value.grad is None or value.grad.isfinite().all() for value in (x, *block.parameters()))


@_every(CAUSAL + BOTH_WAYS)
def test_gradients_reach_every_parameter_and_the_input(configured):
    # Long enough for what begins late, and with the losses of parameters that learn from nothing else.
    block, x = _built(configured), _input(131).requires_grad_()
    context = _context(x)
    y = block(x, context)
    ((y * torch.randn_like(y)).sum() + context.loss()).backward()
    for name, value in (("x", x), *block.named_parameters()):
        assert value.grad is not None, name
        assert value.grad.isfinite().all(), name
        assert value.grad.abs().max() > 0, name


@_every(STREAMING)
def test_reading_in_pieces_equals_reading_at_once(configured):
    block = _built(configured)
    for pieces in ([1] * 9, [4, 1, 1, 3], [90, 1, 2, 38], [131]):
        x = _input(sum(pieces))
        found, _ = _stream(block, x, pieces)
        torch.testing.assert_close(found, block(x, _context(x)), atol=1e-9, rtol=1e-9)


@_every([case for case in STREAMING if case.id.startswith("block")])
def test_reading_in_pieces_equals_reading_at_once_with_every_position(configured):
    """A block at its defaults with every position however configured, a varied block with each position's defaults.

    A block that never asks its context for the position, in pieces or at once, cannot depend on it: one is enough.
    """
    block, pieces, x = _built(configured), [5, 1, 70, 3], _input(79)
    every = any(configured is case.values[0] for case in DEFAULTS)
    chosen = [case for case in POSITIONS if every or "-defaults-" in case.id]
    for case in chosen if _asks_for_a_position(block, x) else chosen[:1]:
        position = _built(case.values[0])
        found, _ = _stream(block, x, pieces, position=position)
        expected = block(x, _context(x, position=position))
        torch.testing.assert_close(found, expected, atol=1e-9, rtol=1e-9, msg=lambda text, id=case.id: f"{id}: {text}")


@_every(STREAMING)
def test_trains_in_pieces_whose_gradients_end_at_what_was_read_before(configured):
    """Truncated backpropagation: the second piece has the gradients that it has after a first piece without any."""
    x = _input(11)
    gradients = []
    for first_learns in (True, False):
        torch.default_generator.manual_seed(0)
        block, streams = _built(configured).train(), Streams()
        with torch.set_grad_enabled(first_learns):
            first = block(x[:, :7], _context(x[:, :7], streams=streams))
        if first_learns and first.requires_grad:
            first.square().sum().backward()
            block.zero_grad()
        streams.detach()
        streams.length += 7
        streams.rewind()
        piece = x[:, 7:].clone().requires_grad_()
        block(piece, _context(piece, streams=streams)).square().sum().backward()
        gradients.append([each.grad for each in (piece, *block.parameters())])
    for found, expected in zip(*gradients, strict=True):
        assert (found is None) == (expected is None)
        if found is not None:
            torch.testing.assert_close(found, expected, atol=1e-9, rtol=1e-9)


@torch.no_grad()
def _asks_for_a_position(block, x):
    asked = []

    class Watched(Context):
        def __getattribute__(self, name):
            if name == "position":
                asked.append(name)
            return super().__getattribute__(name)

    streams = Streams()
    for piece in (x, x[:, :5], x[:, 5:6]):
        context = _context(piece) if piece is x else _context(piece, streams=streams)
        context.__class__ = Watched
        streams.rewind()
        block(piece, context)
        streams.length += 0 if piece is x else piece.shape[1]
    return bool(asked)


@_every(STREAMING)
def test_state_takes_the_bytes_that_were_declared(configured):
    for dtype, every in ((torch.float32, ([1], [4, 3], [60, 5, 40], [131])), (torch.bfloat16, ([4, 3], [131]))):
        block = _built(configured, dtype)
        for pieces in every:
            x = _input(sum(pieces), dtype)
            _, streams = _stream(block, x, pieces)
            shape = Shape(batch=B, length=sum(pieces), memory=S, element_bytes=x.element_size())
            assert streams.nbytes() == configured.cost(shape).state_bytes
            held = sum(state.untyped_storage().nbytes() for slot in streams.slots for state in slot.values())
            assert held == streams.nbytes(), "a slice holds on to more than it shows"


@_every(STREAMING)
def test_beam_search_may_reorder_the_batch_of_the_state(configured):
    block, x, index = _built(configured), _input(9, batch=3), torch.tensor([2, 0, 0])
    _, streams = _stream(block, x[:, :6], [4, 2])
    streams.reorder(index)
    # The memory is that of each beam's own sequence, which the state keeps: the context's is no longer asked.
    found, _ = _stream(block, x[index, 6:], [1, 2], streams)
    torch.testing.assert_close(found, block(x, _context(x))[index, 6:], atol=1e-9, rtol=1e-9)


@_every(BOTH_WAYS)
def test_what_sees_the_future_refuses_to_read_in_pieces(configured):
    block, x = _built(configured), _input(5).requires_grad_()  # a dilated window sees every third position
    block(x, _context(x))[:, 0].sum().backward()
    if x.grad[:, 1:].any():
        with pytest.raises(ValueError, match="looks both ways"):
            block(x, _context(x, streams=Streams()))
    else:  # such as attention over an encoder's output, which is known as a whole
        found, _ = _stream(block, x, [1, 4])
        torch.testing.assert_close(found, block(x, _context(x)), atol=1e-9, rtol=1e-9)


@_every(CAUSAL + BOTH_WAYS)
def test_declared_parameters_and_flops_are_those_of_the_built_module(configured):
    block = _built(configured, torch.float32)
    for length in LENGTHS:
        x = _input(length, torch.float32).requires_grad_()
        context = _context(x)
        context.memory.requires_grad_()
        cost = configured.cost(Shape(batch=B, length=length, memory=S))
        assert cost.parameters == sum(parameter.numel() for parameter in block.parameters())

        def call():
            used = replace(context, losses=[])  # noqa: B023
            # A product of its own, so that a block which returns its input has a backward pass too.
            return block(x, used).sum() * 1.0 + used.loss()  # noqa: B023

        assert (cost.flops, cost.training_flops) == count_flops(call)
        assert cost.expected_flops == cost.flops


@_every(CAUSAL + BOTH_WAYS)
def test_declared_activations_are_within_a_quarter_of_what_autograd_keeps(configured):
    block = _built(configured, torch.float32)
    for length in (1, 20, 131):
        x = _input(length, torch.float32).requires_grad_()
        context = _context(x)
        context.memory.requires_grad_()
        kept = kept_bytes(lambda: block(x, context), block.parameters())  # noqa: B023
        declared = configured.cost(Shape(batch=B, length=length, memory=S)).activation_bytes
        assert declared == pytest.approx(kept, rel=0.25)


@pytest.mark.parametrize("configured", DEFAULTS)
def test_memory_grows_no_faster_than_the_declared_work(configured):
    """What needs four times the work for four times the length has no hidden matrix of all pairs."""
    short, long = 256, 1024
    if hasattr(configured.config, "length"):
        configured = replace(configured, config=replace(configured.config, length=long))
    block, flops, peaks = _built(configured, torch.float32), [], []
    for length in (short, long):
        x = _input(length, torch.float32).requires_grad_()
        context = _context(x)
        flops.append(configured.cost(Shape(batch=B, length=length, memory=S)).flops)
        peaks.append(peak_bytes(lambda: block(x, context).sum().backward()))  # noqa: B023
    if flops[1] <= 8 * flops[0]:
        n_log_n = long / short * math.log(long) / math.log(short)
        assert peaks[1] <= n_log_n * peaks[0]


@_every(CAUSAL + BOTH_WAYS)
def test_bfloat16_is_near_float64(configured):
    block, choices = _built(configured, torch.bfloat16), _choices(configured)
    x = _input(131, torch.bfloat16)
    y = block(x, _context(x, choices=choices))
    wide, context = copy.deepcopy(block).double(), _context(x, choices=_again(choices))
    expected = wide(x.double(), replace(context, memory=context.memory.double()))
    assert y.dtype == torch.bfloat16
    # 8 bits of mantissa, and a handful of roundings one after the other.
    assert (y.double() - expected).abs().max() <= 8 * 2**-8 * expected.abs().max()


@_every(CAUSAL + BOTH_WAYS)
def test_trains_in_mixed_precision(configured):
    block, x = _built(configured, torch.float32), _input(70, torch.float32).requires_grad_()
    padding, choices = torch.rand(B, 70) < 0.8, _choices(configured)
    expected = block(x, _context(x, padding=padding, choices=choices))
    context = _context(x, padding=padding, choices=_again(choices))
    with torch.autocast("cpu", torch.bfloat16):
        y = block(x, context)
    assert (y - expected)[padding].abs().max() <= 8 * 2**-8 * expected.abs().max()
    (y.float().square().mean() + context.loss()).backward()
    assert all(value.grad.isfinite().all() for value in (x, *block.parameters()))


@_every(STREAMING)
def test_reads_in_pieces_in_mixed_precision(configured):
    block, x = _built(configured, torch.float32), _input(70, torch.float32)
    with torch.autocast("cpu", torch.bfloat16):
        whole, (streamed, _) = block(x, _context(x)), _stream(block, x, [5, 1, 64])
    assert (streamed - whole).abs().max() <= 8 * 2**-8 * whole.abs().max()


@_every(CAUSAL + BOTH_WAYS)
def test_a_state_dict_carries_everything(configured):
    first, second, x = _built(configured), _built(configured), _input(7)
    second.load_state_dict(first.state_dict())
    assert second(x, _context(x)).equal(first(x, _context(x)))


class _Together(torch.nn.Module):
    """The blocks of several cases, each called on its own."""

    def __init__(self, cases):
        super().__init__()
        self.blocks = torch.nn.ModuleList(_built(case.values[0]) for case in cases)

    def forward(self, x, contexts=None):
        contexts = [_context(x) for _ in self.blocks] if contexts is None else contexts
        return [block(x, context) for block, context in zip(self.blocks, contexts)]


def _agree(cases, found, expected):
    for case, found_of_case, expected_of_case in zip(cases, found, expected, strict=True):
        torch.testing.assert_close(
            found_of_case, expected_of_case, atol=1e-12, rtol=1e-12, msg=lambda text, id=case.id: f"{id}: {text}"
        )


@pytest.mark.parametrize("cases", GROUPS, ids=_named)
def test_compiled_copies_agree(cases, monkeypatch):
    """As one graph. Each operation's gradients are traced by its own tests; the rest of a block is plain PyTorch."""
    monkeypatch.setattr(torch._dynamo.guards, "profile_guard_manager", lambda *_: 0.0)  # it times, and judges nothing
    torch.compiler.reset()
    together, x = _Together(cases), _input(20)
    compiled = torch.compile(together, backend="eager", fullgraph=True)
    contexts = [[_context(x) for _ in cases] for _ in range(2)]
    _agree(cases, compiled(x, contexts[0]), together(x, contexts[1]))


@pytest.mark.parametrize("cases", GROUPS, ids=_named)
def test_exported_programs_agree(cases):
    x, together = _input(20), _Together(cases)
    exported = torch.export.export(together, (x,)).module()
    _agree(cases, exported(x), together(x))


@_every(CAUSAL + BOTH_WAYS)
def test_is_the_same_again_under_a_seed(configured):
    config, x = configured.config, _input(7)
    if hasattr(config, "dropout"):
        config = replace(config, dropout=0.5)
    outs = []
    for _ in range(2):
        torch.default_generator.manual_seed(3)
        outs.append(configured.type.module(config).double().train()(x, _context(x)))
    assert outs[0].equal(outs[1])
    if hasattr(config, "dropout"):
        quiet = configured.type.module(config).double().eval()
        assert quiet(x, _context(x)).equal(quiet(x, _context(x)))
        assert not quiet.train()(x, _context(x)).equal(quiet(x, _context(x)))


@_every(CAUSAL + BOTH_WAYS)
def test_a_configuration_crosses_process_boundaries(configured):
    assert pickle.loads(pickle.dumps(configured.config)) == configured.config


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: f"{kind.role}-{kind.name}")
def test_a_configuration_is_frozen_and_every_field_in_yaml_has_a_scalar_default(kind):
    config = next(examples(kind, Given(dim=C, memory=True)))[1].config
    assert is_dataclass(config)
    with pytest.raises(FrozenInstanceError):
        config.dim = 8
    for name, default in scalar_defaults(kind).items():
        assert isinstance(default, (bool, int, float, str, type(None))), name
        assert not isinstance(default, float) or math.isfinite(default), name
    assert kind.given <= {"dim", "causal", "memory", "widens"}
    assert all(field.kw_only for field in fields(config))


def test_a_name_that_several_roles_share_is_written_alike():
    written = {}
    for role in ("block", "norm", "position", "model"):
        for name, kind in block_types(role).items():
            assert list(written.setdefault(name, kind.fields)) == list(kind.fields), name
