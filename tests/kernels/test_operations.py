"""What holds for every operation and all its implementations; a new one is tested without a new line here.

`compiled` is left out: it is the definition, and compiling takes longer than all other tests here.
"""

import functools
import sys
from dataclasses import replace

import pytest
import torch
from functorch.compile import default_partition, nop
from torch._dynamo.backends.common import aot_autograd
from torch.utils import _pytree as pytree

from benchmarks.support.seeds import COUNTS, LONG, WIDE, reasons, small, ways
from kernels.dispatch import plain, tuned
from kernels.dispatch.registry import Choice, operation, operations
from kernels.dispatch.table import Entry, Table
from kernels.rowwise import rows

# With everything that its kernels have code for.
RICH = {
    "attention": {"bias": "learned", "padded": True, "slopes": True, "dropout": True},
    "block_sparse_attention": {"lists": "own", "allowed": "pairs", "bias": "learned", "padded": True},
    "decayed_linear_attention": {"begun": True},
    "decode_attention": {"padded": True, "lengths": True, "bias": True},
    "linear_attention": {"begun": True},
    "packed_attention": {"slopes": True, "dropout": True},
}
# Parameters of Triton's compiler, which its interpreter ignores.
COMPILED = ("num_warps", "num_stages", "precision")
# Tiles are never empty, and a pattern of blocks needs keys.
NEVER = {("block_sparse_attention", "rows"), ("block_sparse_attention", "keys")}
NAMES = list(operations())
# `aot_eager` without its decisions what to compute again in the backward pass, which take a third of its time.
TRACED = aot_autograd(fw_compiler=nop, partition_fn=default_partition)


@functools.cache
def launcher(name):
    """Its public function, with the arguments that `inputs` makes and a configuration."""
    found, modules = operation(name), [each for key, each in sys.modules.items() if key.startswith("kernels.")]
    (module,) = [each for each in modules if getattr(each, "OPERATION", None) is found]
    if name != "layer_norm":
        return getattr(module, name)

    def layer_norm(x, weight, bias, residual=None, config=None):
        return module.add_layer_norm(x, residual, weight, bias, config=config)

    return layer_norm


def results(call, args, kwargs, expanded=False):
    """Outputs, and gradients of a weighted sum of them that is the same for every implementation."""
    outs = [y for y in pytree.tree_leaves(call(*args, **kwargs)) if isinstance(y, torch.Tensor)]
    leaves = [x for x in pytree.tree_leaves((args, kwargs)) if isinstance(x, torch.Tensor) and x.requires_grad]
    generator = torch.Generator().manual_seed(1)
    learned = [y for y in outs if y.requires_grad]
    if not learned:
        return [*outs, *map(torch.zeros_like, leaves)]
    weights = [
        torch.ones((), dtype=y.dtype).expand_as(y) if expanded else torch.randn(y.shape, generator=generator).to(y)
        for y in learned
    ]
    return [*outs, *torch.autograd.grad(learned, leaves, weights, materialize_grads=True)]


def assert_near(found, expected, dtype=torch.float32):
    assert len(found) == len(expected)
    share = (16 if dtype == torch.bfloat16 else 256) * torch.finfo(dtype).eps
    for one, other in zip(found, expected, strict=True):
        bound = share * max(1.0, other.abs().max().item() if other.numel() else 0.0)
        torch.testing.assert_close(one.double(), other.double(), atol=bound, rtol=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("name", NAMES)
def test_every_implementation_is_the_definition_as_far_as_its_dtype_goes(name, dtype):
    """Compared in float64; unwritten memory is filled with NaN, and inputs must not change."""
    problem = small(name, str(dtype).removeprefix("torch."), long=LONG if dtype == torch.float32 else WIDE)
    served = operation(name).choices(problem)
    # Triton's interpreter truncates to bfloat16, a GPU rounds: so it gets float16, and the others bfloat16.
    calls = {
        way: call
        for way, call in ways(problem).items()
        if dtype == torch.float32 or (way in served) == (dtype == torch.bfloat16)
    }
    assert reasons(problem, 0, calls) == {}


@pytest.mark.parametrize("name", NAMES)
def test_no_seed_makes_the_check_reject_what_is_correct(name):
    """On any processor; `python -m benchmarks.faults --seeds 500` is the long form."""
    problem = small(name, long=LONG)
    calls = {way: call for way, call in ways(problem).items() if way in operation(name).choices(problem)}
    for seed in range(1, 4):
        assert reasons(problem, seed, calls) == {}, seed


@pytest.mark.parametrize("name", NAMES)
def test_any_layout_of_inputs_and_gradients_will_do(name):
    """Inputs with a stride of two; a gradient that is one number, expanded."""
    args, kwargs = operation(name).inputs(small(name), 0)

    def apart(x):
        if not isinstance(x, torch.Tensor):
            return x
        spread = torch.empty(*x.shape, 2, dtype=x.dtype)[..., 0]
        return spread.copy_(x.detach()).requires_grad_(x.requires_grad)

    expected = results(operation(name).reference, args, kwargs, expanded=True)
    for call in ways(small(name)).values():
        assert_near(results(call, *pytree.tree_map(apart, (args, kwargs)), expanded=True), expected)


def empty_problems():
    for name in NAMES:
        for size in operation(name).sizes:
            if size in COUNTS and (name, size) not in NEVER:
                yield name, size


@pytest.mark.parametrize(("name", "size"), list(empty_problems()))
def test_there_may_be_nothing(name, size):
    problem = small(name, **{size: 0})
    args, kwargs = operation(name).inputs(problem, 0)
    kwargs |= {"reduction": "sum"} if "entropy" in name else {}
    expected = results(operation(name).reference, args, kwargs)
    for call in ways(problem).values():
        assert_near(results(call, args, kwargs), expected)


def rich(name, **changes):
    """The small problem with all flags of `RICH`."""
    problem = small(name, **changes)
    return replace(problem, flags=tuple((flag, RICH.get(name, {}).get(flag, value)) for flag, value in problem.flags))


def corners(each, problem):
    """All parameters at their least values, one at a time at its largest, and all at their largest; what can run."""
    least, most = ({key: values[end] for key, values in each.parameters.items()} for end in (0, -1))
    some = [least, *({**least, key: value} for key, value in most.items() if key not in COMPILED), most]
    return [one for one in some if each.name != "triton" or "step" not in one or one["step"] == 0 or one["rows"] == 1]


@pytest.mark.parametrize("name", NAMES)
def test_no_configuration_changes_the_result(name):
    problem = rich(name, long=LONG, **({"batch": 1} if "batch" in operation(name).sizes else {}))
    args, kwargs = operation(name).inputs(problem, 0)
    expected = results(operation(name).reference, args, kwargs)
    for way in ways(problem):
        each = operation(name).implementations[way]
        for configuration in corners(each, problem) if each.parameters else ():
            assert_near(results(functools.partial(each.call, **configuration), args, kwargs), expected)


# Those with kernels of their own that read positions or rows by offsets.
FAR = [name for name in NAMES if name not in ("linear_cross_entropy", "packed_attention", "lightweight_convolution")]


@pytest.mark.parametrize("name", FAR)
def test_offsets_beyond_two_to_the_31_are_reached(name):
    """Rows so far apart that a 32-bit offset would overflow; the memory between them is never used."""
    sizes = {size: 1 for size in ("batch", "heads", "groups", "channels", "taps") if size in operation(name).sizes}
    problem = small(name, "float16", long=3, **sizes)
    args, kwargs = operation(name).inputs(problem, 0)
    step, far = 2**30 + 8, []
    memory = torch.empty(2 * step + 64 * len(args), dtype=torch.float16)
    for place, x in enumerate(args):
        if torch.is_tensor(x) and x.dtype == torch.float16 and x.ndim > 1 and x.shape[-2] == 3:
            strides = [step if axis == x.ndim - 2 else 1 for axis in range(x.ndim)]
            far.append(memory.as_strided(x.shape, strides, 64 * place).copy_(x.detach()).requires_grad_())
        else:
            far.append(x)
    assert far[0] is not args[0] or far[1] is not args[1]
    for way, call in ways(problem).items():
        if way in ("blocked", "triton"):
            torch.testing.assert_close(results(call, far, kwargs), results(call, args, kwargs))


def leaves(arguments):
    """The same as leaves of autograd, which torch's checks and traces expect."""

    def leaf(x):
        return x.detach().requires_grad_(x.requires_grad) if isinstance(x, torch.Tensor) else x

    return pytree.tree_map(leaf, arguments)


class Recording(torch.overrides.TorchFunctionMode):
    """Records the calls of our operators, each with its arguments."""

    def __init__(self):
        super().__init__()
        self.calls = {}

    def __torch_function__(self, function, types, args=(), kwargs=None):
        operator = getattr(function, "default", function)
        if isinstance(operator, torch._ops.OpOverload) and operator.namespace == "tessera":
            self.calls.setdefault(operator, (args, kwargs or {}))
        return function(*args, **(kwargs or {}))


# The fourth check of torch is a trace; the tests of whole models below trace.
CHECKS = ("test_schema", "test_autograd_registration", "test_faketensor")


@pytest.mark.parametrize("name", NAMES)
def test_operators_keep_the_rules_of_torch(name):
    problem = rich(name)
    args, kwargs = operation(name).inputs(problem, 0)
    checked, served = set(), operation(name).choices(problem)
    for way, call in ways(problem).items():
        with Recording() as recording:
            call(*args, **kwargs)
        for operator, arguments in recording.calls.items():
            if operator not in checked:  # several implementations may use the same operator
                checked.add(operator)
                more = () if way in served else ("test_aot_dispatch_static",)
                torch.library.opcheck(operator, *leaves(arguments), test_utils=(*CHECKS, *more))


def configurations(name):
    """None, and each implementation that a CPU can run."""
    problem = small(name)
    return [None, *[Choice.of(way) for way in operation(name).choices(problem) if way != "compiled"]]


class Model(torch.nn.Module):
    def __init__(self, name, config):
        super().__init__()
        self.launch, self.config = launcher(name), config

    def forward(self, *args, **kwargs):
        return self.launch(*args, **kwargs, config=self.config)


class Models(torch.nn.Module):
    """One operation with several configurations: to compile or export them together takes less time."""

    def __init__(self, name, configs):
        super().__init__()
        self.each = torch.nn.ModuleList(Model(name, config) for config in configs)

    def forward(self, *args, **kwargs):
        return [each(*args, **kwargs) for each in self.each]


@pytest.mark.parametrize("name", NAMES)
def test_a_compiled_model_is_the_same(name):
    args, kwargs = leaves(operation(name).inputs(small(name), 0))
    expected = results(operation(name).reference, args, kwargs)
    configs = configurations(name)[::2]  # the next test exports the others
    torch._dynamo.reset()
    compiled = torch.compile(Models(name, configs), backend=TRACED, fullgraph=True)
    for place in range(len(configs)):
        assert_near(results(lambda *args, **kwargs: compiled(*args, **kwargs)[place], args, kwargs), expected)  # noqa: B023
    torch._dynamo.reset()


@pytest.mark.parametrize("name", NAMES)
def test_an_exported_model_is_the_same(name):
    args, kwargs = operation(name).inputs(small(name, gradients=False), 0)
    models = Models(name, (None, *configurations(name)[1::2]))
    program = torch.export.export(models, args, kwargs)
    torch.testing.assert_close(program.module()(*args, **kwargs), models(*args, **kwargs))


@pytest.mark.parametrize("name", NAMES)
def test_in_plain_mode_it_is_the_definition_by_operators_of_pytorch(name, only_pytorch):
    """With any configuration, and also after torch.export."""
    args, kwargs = leaves(operation(name).inputs(small(name), 0))
    expected = results(operation(name).reference, args, kwargs)
    for config in configurations(name)[:1] + configurations(name)[-1:]:
        call = functools.partial(launcher(name), config=config)
        with plain(), only_pytorch() as check:
            assert_near(results(call, args, kwargs), expected)
            check(*[y for y in pytree.tree_leaves(call(*args, **kwargs)) if isinstance(y, torch.Tensor)])
    args, kwargs = operation(name).inputs(small(name, gradients=False), 0)
    with plain():
        program = torch.export.export(Model(name, None), args, kwargs)
    called = [node.target for node in program.graph.nodes if node.op == "call_function"]
    assert {each.namespace for each in called if isinstance(each, torch._ops.OpOverload)} == {"aten"}
    torch.testing.assert_close(program.module()(*args, **kwargs), launcher(name)(*args, **kwargs))


@pytest.mark.parametrize("name", NAMES)
def test_mixed_precision_gives_every_implementation_one_dtype(name):
    args, kwargs = operation(name).inputs(small(name), 0)
    expected = results(operation(name).reference, args, kwargs)
    dtypes = {}
    narrow = small(name, "bfloat16")
    served = operation(name).choices(narrow)
    with torch.autocast("cpu", torch.bfloat16):
        for way, call in {**ways(narrow), "served": launcher(name)}.items():
            if way in served:  # as models call it
                call = functools.partial(launcher(name), config=Choice.of(way))
            found = results(call, args, kwargs)
            dtypes[way] = [each.dtype for each in found]
            for one, other in zip(found, expected, strict=True):
                assert (one - other).abs().max() <= 32 * 2**-8 * max(1.0, other.abs().max()), way
    assert len({tuple(each) for each in dtypes.values()}) == 1, dtypes


@pytest.mark.parametrize("name", NAMES)
def test_a_configuration_at_the_call_wins_over_the_table(name, monkeypatch):
    found, problem = operation(name), small(name)
    args, kwargs = found.inputs(problem, 0)
    called = []

    def recorded(each):
        @functools.wraps(each.call)
        def call(*args, **kwargs):
            called.append(Choice.of(each.name, {name: kwargs[name] for name in each.parameters}))
            return each.call(*args, **kwargs)

        return replace(each, call=call)

    for way, each in found.implementations.items():
        monkeypatch.setitem(found.implementations, way, recorded(each))
    first, *_, last = list(served_on_a_cpu(name, problem))
    with tuned.asked() as problems:
        launcher(name)(*args, **kwargs)
    (asked,) = problems
    entry = Entry(asked, first, 1.0, found.implementations[first.implementation].source)
    tuned.use("cpu", Table([entry]))
    try:
        called.clear()
        launcher(name)(*args, **kwargs)
        launcher(name)(*args, **kwargs, config=last)
        assert called == [first, last]
    finally:
        tuned.use("cpu", None)


def served_on_a_cpu(name, problem):
    """Every implementation with every value of its first parameter, and defaults for the others."""
    found = operation(name)
    for way in found.choices(problem):
        each = found.implementations[way]
        if way != "compiled":
            yield Choice.of(way, each.default)
            for parameter, values in list(each.parameters.items())[:1]:
                yield from (Choice.of(way, {**each.default, parameter: value}) for value in values)


@pytest.mark.parametrize("name", NAMES)
def test_a_configuration_that_is_none_is_told_the_nearest(name):
    found = operation(name)
    args, kwargs = found.inputs(small(name), 0)
    for way in found.choices(small(name)):
        with pytest.raises(ValueError, match=f"{name} has no implementation '{way}x'. Did you mean '{way}'?"):
            launcher(name)(*args, **kwargs, config=Choice.of(f"{way}x"))
        for parameter, values in found.implementations[way].parameters.items():
            with pytest.raises(ValueError, match=f"no parameter '{parameter}x'. Did you mean '{parameter}'?"):
                launcher(name)(*args, **kwargs, config=Choice.of(way, {f"{parameter}x": values[0]}))
            with pytest.raises(ValueError, match=rf"{parameter} must be one of \[.*\], but got -1"):
                launcher(name)(*args, **kwargs, config=Choice.of(way, {parameter: -1}))


@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.parametrize("name", NAMES)
def test_what_nobody_tuned_can_run(name, device):
    """Also problems of other dtypes and sizes, one size at a time."""
    found = operation(name)
    named = list(found.problems(device).values())
    assert all((each.device, set(dict(each.flags))) == (device, set(found.flags)) for each in named)
    others = [
        replace(named[-1], dtype=dtype, sizes=tuple({**dict(named[-1].sizes), size: number}.items()))
        for dtype in ("bfloat16", "float16", "float32")
        for size in found.sizes
        for number in (2, 72, 300, 5000)
        if size not in ("groups", "heads")  # one is a multiple of the other
    ]
    for problem in (*named, *others):
        for each in found.implementations.values():
            if each.refuses(problem) is None:
                found.check(Choice.of(each.name, each.default_for(problem)), problem)
        found.check(found.default_choice(problem), problem)


# Before tuning: on a CPU, on a GPU; for the named problems.
DEFAULTS = {
    "attention": ("sdpa", "sdpa"),
    "block_sparse_attention": ("gathered", "gathered"),
    "decode_attention": ("matmul", "sdpa"),
    "favor_features": ("torch", "torch"),
    "rms_norm": ("torch", "torch"),
}


@pytest.mark.parametrize(("name", "chosen"), DEFAULTS.items(), ids=DEFAULTS)
def test_what_runs_before_tuning(name, chosen):
    found = operation(name)
    for device, expected in zip(("cpu", "cuda"), chosen, strict=True):
        assert {found.default_choice(each).implementation for each in found.problems(device).values()} == {expected}


@pytest.mark.parametrize("name", NAMES)
def test_a_call_asks_for_the_problem_that_its_inputs_were_made_for(name):
    problem = small(name)
    args, kwargs = operation(name).inputs(problem, 0)
    with tuned.asked() as found:
        launcher(name)(*args, **kwargs)
    assert list(found) == [problem]


@pytest.mark.parametrize("name", NAMES)
def test_triton_is_never_chosen_where_there_is_no_gpu(name):
    found, problem = operation(name), small(name)
    triton = [way for way, each in found.implementations.items() if each.refuses(problem) == rows.needs_gpu(problem)]
    assert triton, "every operation has Triton kernels"
    for way in triton:
        assert way not in found.choices(problem)
        with pytest.raises(ValueError, match="a Triton kernel needs a GPU"):
            found.check(Choice.of(way), problem)


@pytest.mark.parametrize("name", NAMES)
def test_a_space_has_its_default_within_and_no_value_twice(name):
    found = operation(name)
    assert len(found.implementations) >= 2
    for way, each in found.implementations.items():
        assert way == each.name
        assert set(each.default) == set(each.parameters)
        for parameter, values in each.parameters.items():
            assert len(set(values)) == len(values) >= 2, parameter
            assert each.default[parameter] in values
