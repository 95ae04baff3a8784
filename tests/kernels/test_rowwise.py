"""What holds for every operation on rows: each implementation, at every corner of its space, is its definition."""

import importlib
import itertools
from functools import partial

import pytest
import torch

from kernels.registry import Choice, operation
from kernels.rows import wide

SIZES = {
    "rms_norm": ((5, 33), {}),
    "layer_norm": ((5, 33), {"residual": True}),
    "softmax": ((5, 33), {}),
    "gated_activation": ((5, 33), {"gate": "silu"}),
    "rotary": ((2, 3, 5, 10), {"layout": "halves"}),
    "cross_entropy": ((5, 1030), {}),
    "linear_cross_entropy": ((5, 3, 12), {"bias": True}),
}
NAMES = tuple(SIZES)
HALF = (torch.bfloat16, torch.float16)


def problem_of(name, dtype="float64", gradients=True, sizes=None):
    known, flags = SIZES[name]
    found = operation(name)
    flags = tuple({"gradients": gradients, **flags}[flag] for flag in found.flags)
    return found.problem("cpu", dtype, sizes or known, flags)


def corners(implementation):
    """The first and the last value of every parameter."""
    ends = [dict.fromkeys((values[0], values[-1])) for values in implementation.parameters.values()]
    return [dict(zip(implementation.parameters, values)) for values in itertools.product(*ends)]


def tensors(args, kwargs):
    return [x for x in (*args, *kwargs.values()) if isinstance(x, torch.Tensor) and x.requires_grad]


def results(call, args, kwargs):
    """Outputs, and gradients of a weighted sum of them that is the same for every implementation."""
    out = call(*args, **kwargs)
    outs = out if isinstance(out, tuple) else (out,)
    generator = torch.Generator().manual_seed(1)
    total = sum((y.double() * torch.randn(y.shape, generator=generator, dtype=torch.float64)).sum() for y in outs)
    return [*outs, *torch.autograd.grad(total, tensors(args, kwargs))]


def exact(args, kwargs):
    """The same arguments in float64."""

    def wide(x):
        if not isinstance(x, torch.Tensor) or not x.is_floating_point():
            return x
        return x.detach().double().requires_grad_(x.requires_grad)

    return tuple(map(wide, args)), {name: wide(x) for name, x in kwargs.items()}


def assert_near(found, expected, dtype):
    """Half precision is computed in float32 and rounded at the end; elsewhere errors add up over a row."""
    share = (8 if dtype in HALF else 256) * torch.finfo(dtype).eps
    for one, other in zip(found, expected, strict=True):
        assert one.shape == other.shape
        bound = share * max(1.0, other.abs().max().item() if other.numel() else 0.0)
        torch.testing.assert_close(one.double(), other.double(), atol=bound, rtol=0)


@pytest.mark.parametrize("implementation", ["torch", "blocked", "chunked", "triton"])
@pytest.mark.parametrize("name", NAMES)
def test_every_corner_is_the_definition(name, implementation):
    found = operation(name)
    if implementation not in found.implementations:
        pytest.skip(f"{name} has no {implementation}")
    args, kwargs = found.inputs(problem_of(name), 0)
    expected = results(found.reference, args, kwargs)
    each = found.implementations[implementation]
    for configuration in corners(each):
        assert_near(results(partial(each.call, **configuration), args, kwargs), expected, torch.float64)


@pytest.mark.parametrize("dtype", [torch.float32, *HALF], ids=str)
@pytest.mark.parametrize("name", NAMES)
def test_is_as_exact_as_its_dtype(name, dtype):
    found = operation(name)
    args, kwargs = found.inputs(problem_of(name, str(dtype).removeprefix("torch.")), 0)
    expected = results(found.reference, *exact(args, kwargs))
    for each in found.implementations.values():
        if each.name != "compiled":
            got = results(partial(each.call, **each.default), args, kwargs)
            assert got[0].dtype == (wide(args[0]) if "entropy" in name else dtype)
            assert_near(got, expected, dtype)


@pytest.mark.parametrize("name", NAMES)
def test_rows_may_be_none(name):
    sizes, _ = SIZES[name]
    at = operation(name).sizes.index("length" if name == "rotary" else "rows")
    found, empty = operation(name), tuple(0 if place == at else size for place, size in enumerate(sizes))
    args, kwargs = found.inputs(problem_of(name, sizes=empty), 0)
    kwargs |= {"reduction": "sum"} if "entropy" in name else {}
    expected = results(found.reference, args, kwargs)
    for each in found.implementations.values():
        if each.name != "compiled":
            got = results(partial(each.call, **each.default), args, kwargs)
            assert_near(got, expected, torch.float64)


@pytest.mark.parametrize("implementation", ["blocked", "chunked", "triton"])
@pytest.mark.parametrize("name", NAMES)
def test_the_operators_keep_the_rules_of_torch(name, implementation):
    found = operation(name)
    if implementation not in found.implementations:
        pytest.skip(f"{name} has no {implementation}")
    args, kwargs = found.inputs(problem_of(name, "float32"), 0)
    each, calls = found.implementations[implementation], []
    operator = getattr(torch.ops.tessera, name).default
    with Recording(operator, calls):
        each.call(*args, **kwargs, **each.default)
    ((args, kwargs),) = calls
    leaves = [x.detach().requires_grad_(x.requires_grad) if isinstance(x, torch.Tensor) else x for x in args]
    torch.library.opcheck(operator, tuple(leaves), kwargs)


class Recording(torch.overrides.TorchFunctionMode):
    """Keeps the arguments that an operator is called with."""

    def __init__(self, operator, calls):
        super().__init__()
        self.operator, self.calls = operator, calls

    def __torch_function__(self, function, types, args=(), kwargs=None):
        if function in (self.operator, self.operator.overloadpacket):
            self.calls.append((args, kwargs or {}))
        return function(*args, **(kwargs or {}))


@pytest.mark.parametrize("name", NAMES)
def test_a_problem_that_nobody_tuned_is_served_by_the_default(name):
    found = operation(name)
    module = importlib.import_module(f"kernels.{name}")
    launch = getattr(module, name)
    if name == "layer_norm":

        def launch(x, weight, bias, residual):
            return module.add_layer_norm(x, residual, weight, bias)

    args, kwargs = found.inputs(problem_of(name), 0)
    expected = results(found.reference, *found.inputs(problem_of(name), 0))
    assert_near(results(launch, args, kwargs), expected, torch.float64)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_what_nobody_tuned_can_run(name, device):
    found = operation(name)
    problems = found.problems(device)
    assert {problem.device for problem in problems.values()} == {device}
    for problem in problems.values():
        for each in found.implementations.values():
            if each.refuses(problem) is None:
                found.check(Choice.of(each.name, each.default_for(problem)), problem)
        found.check(found.default_choice(problem), problem)


@pytest.mark.parametrize("name", NAMES)
def test_triton_is_never_chosen_where_there_is_no_gpu(name):
    found = operation(name)
    with pytest.raises(ValueError, match="a Triton kernel needs a GPU"):
        found.check(Choice.of("triton"), problem_of(name))
    assert "triton" not in found.choices(problem_of(name))


def launcher(name):
    """Its public function, with the arguments that `inputs` makes and a configuration."""
    module = importlib.import_module(f"kernels.{name}")
    if name != "layer_norm":
        return getattr(module, name)

    def add_layer_norm(x, weight, bias, residual, config=None):
        return module.add_layer_norm(x, residual, weight, bias, config=config)

    return add_layer_norm


@pytest.mark.parametrize("name", NAMES)
def test_a_compiled_model_runs_the_configured_implementation(name):
    torch._dynamo.reset()
    found = operation(name)
    chosen = "chunked" if "linear" in name else "blocked"
    launch = partial(launcher(name), config=Choice.of(chosen))
    args, kwargs = found.inputs(problem_of(name), 0)
    compiled = torch.compile(launch, backend="aot_eager", fullgraph=True)
    assert_near(results(compiled, args, kwargs), results(found.reference, args, kwargs), torch.float64)


@pytest.mark.parametrize("config", [None, "own"])
@pytest.mark.parametrize("name", NAMES)
def test_an_exported_model_is_the_same(name, config):
    found = operation(name)
    chosen = None if config is None else Choice.of("chunked" if "linear" in name else "blocked")
    args, kwargs = found.inputs(problem_of(name, gradients=False), 0)

    class Model(torch.nn.Module):
        def forward(self, *args, **kwargs):
            return launcher(name)(*args, **kwargs, config=chosen)

    program = torch.export.export(Model(), args, kwargs)
    assert (f"tessera.{name}" in program.graph_module.code) == (chosen is not None)
    with torch.no_grad():
        found, expected = program.module()(*args, **kwargs), Model()(*args, **kwargs)
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("name", NAMES)
def test_mixed_precision_gives_every_implementation_one_dtype(name):
    found = operation(name)
    args, kwargs = found.inputs(problem_of(name, "float32"), 0)
    dtypes = {}
    for each in found.implementations.values():
        if each.name not in ("compiled", "triton"):
            with torch.autocast("cpu", torch.bfloat16):
                out = each.call(*args, **kwargs, **each.default)
            dtypes[each.name] = (out[0] if isinstance(out, tuple) else out).dtype
    assert len(set(dtypes.values())) == 1, dtypes


ROWS, STRIDE = 3, 2**30


@pytest.mark.parametrize("name", ["cross_entropy", "gated_activation", "layer_norm", "rms_norm", "rotary", "softmax"])
def test_offsets_beyond_two_to_the_31_are_reached(name):
    """Rows so far apart that a 32-bit offset would read elsewhere; only their own pages are ever touched."""
    found = operation(name)
    each, sizes = found.implementations["triton"], (1, 1, ROWS, 8) if name == "rotary" else (ROWS, 8)
    args, kwargs = found.inputs(problem_of(name, "float16", sizes=sizes), 0)
    near = args[0].detach()
    strides = (1, 1, STRIDE, 1) if name == "rotary" else (STRIDE, 1)
    memory = torch.empty((ROWS - 1) * STRIDE + near.shape[-1], dtype=torch.float16)
    far = memory.as_strided(near.shape, strides)
    far.copy_(near)
    got = results(partial(each.call, **each.default), (far.requires_grad_(), *args[1:]), kwargs)
    expected = results(partial(each.call, **each.default), (near.clone().requires_grad_(), *args[1:]), kwargs)
    torch.testing.assert_close(got, expected)


@pytest.mark.parametrize("name", NAMES)
def test_gradients_may_come_without_memory_of_their_own(name):
    """That of a sum is one number, expanded to every place."""
    found = operation(name)
    args, kwargs = found.inputs(problem_of(name), 0)

    def gradients(call):
        out = call(*args, **kwargs)
        y = out[0] if isinstance(out, tuple) else out
        return torch.autograd.grad(y, tensors(args, kwargs), torch.ones((), dtype=y.dtype).expand_as(y))

    expected = gradients(found.reference)
    for each in found.implementations.values():
        if each.name != "compiled":
            assert_near(gradients(partial(each.call, **each.default)), expected, torch.float64)
