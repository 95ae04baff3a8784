"""Tools for tests of blocks: example configurations of every primitive, and measured costs.

`examples` varies every field of a configuration according to its type, so a new primitive is tested without new code.
`count_flops`, `kept_bytes` and `peak_bytes` measure the costs that `Cost` declares.
"""

from __future__ import annotations

import dataclasses
import weakref
from collections.abc import Callable, Iterable, Iterator
from types import NoneType
from typing import Any, ClassVar, Literal, get_args, get_origin

import torch
from torch import Tensor, nn
from torch._ops import OpOverload
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import conv_flop_count, flop_registry, shape_wrapper

from searchspace.contract import Given
from searchspace.registry import BlockType, Configured, Role, block_types


def primitives(role: Role) -> list[BlockType]:
    """The registered blocks of `role` that contain no other blocks."""
    kinds = block_types(role).values()
    return [kind for kind in kinds if all(field.role is None for field in kind.fields.values())]


def examples(kind: BlockType, given: Given) -> Iterator[tuple[str, Configured]]:
    """(what varies, the configured block): first the defaults, then each field with other values of its type.

    Fields with the same list of named values share them: each field takes at least one, each value is in some field.

    Raises AssertionError if a field accepts none of the values.
    """
    surroundings = {name: getattr(given, name) for name in kind.given}
    yield "defaults", Configured(kind, kind.config(**surroundings))
    seen: set[tuple[Any, Any]] = set()  # lists of named values, each with a value that occurs above
    for field in kind.fields.values():
        values = [value for value in _alternatives(field.type, kind.role) if value != field.default]
        accepted = [config for value in values if (config := _accepted(kind, {**surroundings, field.name: value}))]
        assert accepted or not values, f"{kind.name}.{field.name} takes none of {values}."
        if get_origin(field.type) is Literal:  # each named value is another algorithm, in every field
            new = [each for each in accepted if (field.type, getattr(each, field.name)) not in seen]
            seen |= {(field.type, value) for value in (field.default, *(getattr(each, field.name) for each in new))}
            accepted = new or accepted[:1]
        else:
            accepted = accepted[:1]  # one other number is enough
        for config in accepted:
            yield f"{field.name}={getattr(config, field.name)}", Configured(kind, config)


def _alternatives(type_: Any, role: Role) -> Iterable[Any]:
    """Values of a field's type to test."""
    if get_origin(type_) is Literal:
        return get_args(type_)
    if type_ is bool:
        return (False, True)
    if type_ is int or int in get_args(type_):
        if role == "position":
            return (500,)  # the size of a table that must be large enough for a whole sequence
        # Odd numbers first, because they find more errors. The last two are for fields that small numbers do not fit,
        # such as the length that a block can read: they exceed the lengths at which blocks are checked.
        return (2, 1, 3) if NoneType in get_args(type_) else (3, 5, 2, 1, 181, 500)
    return ()  # the default is enough for floats


def _accepted(kind: BlockType, values: dict[str, Any]) -> Any | None:
    try:
        return kind.config(**values)
    except ValueError:
        return None


def count_flops(call: Callable[[], Tensor]) -> tuple[int, int]:
    """FLOPs of `call`, and of `call` with the backward pass of its sum, by the formulas of `torch.utils.flop_counter`.

    Attention runs in its plain form, because the formulas cannot see inside fused CPU kernels.
    """
    counter = _Flops()
    with counter, sdpa_kernel(SDPBackend.MATH):
        out = call()
        forward = counter.total
        out.sum().backward()
    return forward, counter.total


class _Flops(TorchDispatchMode):
    """Adds up what `FlopCounterMode` counts, several times faster: it counts the whole, not each module."""

    whole: ClassVar[set[OpOverload]] = set()  # operators that are not made of others

    def __init__(self) -> None:
        super().__init__()
        self.total = 0

    def __torch_dispatch__(self, function: OpOverload, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if function not in self.whole:
            with self:
                result = function.decompose(*args, **kwargs)
            if result is not NotImplemented:
                return result
            self.whole.add(function)
        result = function(*args, **kwargs)
        operator = function.overloadpacket
        if formula := OWN.get(operator) or flop_registry.get(operator):  # a call may import operators with formulas
            self.total += _counted(formula, args, kwargs, result)
        return result


def _counted(formula: Callable[..., int], args: Any, kwargs: dict[str, Any], result: Any) -> int:
    """The FLOPs of one call. torch's own search for tensors among the arguments takes longer than the formula."""
    by_shapes = getattr(formula, "__wrapped__", None)
    if by_shapes is None:  # it reads the tensors themselves
        return formula(*args, **kwargs, out_val=result)
    named = {name: _shapes(value) for name, value in kwargs.items()}
    return by_shapes(*map(_shapes, args), **named, out_shape=_shapes(result))


def _shapes(value: Any) -> Any:
    """The shape of a tensor, also inside lists; other values as they are."""
    if isinstance(value, Tensor):
        return value.shape
    if isinstance(value, list | tuple):
        return [_shapes(each) for each in value]
    return value


def _convolution(
    grad: Any, x: Any, weight: Any, _bias: Any, _stride: Any, _padding: Any, _dilation: Any, transposed: bool,
    _output_padding: Any, _groups: int, wanted: list[bool], **_: Any,
) -> int:  # fmt: skip
    """FLOPs of the gradients of a convolution; each gradient costs as much as the forward pass.

    The formula of torch multiplies every input channel with every output channel for the gradient of the weights. With
    groups, only channels of one group are multiplied, so torch counts a depthwise convolution once per channel.
    """
    return sum(wanted[:2]) * conv_flop_count(x, weight, grad, transposed)


OWN = {torch.ops.aten.convolution_backward: shape_wrapper(_convolution)}  # instead of the formula of torch


def kept_bytes(call: Callable[[], Any], parameters: Iterable[nn.Parameter] = ()) -> int:
    """Bytes that autograd keeps after `call` for the backward pass. A storage counts once, `parameters` not at all."""
    own = {parameter.untyped_storage().data_ptr() for parameter in parameters}
    storages: dict[int, Any] = {}  # kept until the end, so that no address is reused

    def keep(tensor: Tensor) -> Tensor:
        storages[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        result = call()
    del result
    return sum(storage.nbytes() for address, storage in storages.items() if address not in own)


def peak_bytes(call: Callable[[], Any]) -> int:
    """The maximum number of bytes that results of operations inside `call` use at one time, on any device.

    Temporary memory inside an operation is not measured. Tensors that existed before do not count.
    """
    with _Allocations() as allocations:
        call()
    return allocations.peak


class _Allocations(TorchDispatchMode):
    """Follows every storage from the operation that creates it until it is freed."""

    def __init__(self) -> None:
        super().__init__()
        self.live: dict[int, int] = {}  # bytes by address
        self.now = self.peak = 0

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = function(*args, **(kwargs or {}))
        before = {leaf.untyped_storage().data_ptr() for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)}
        for leaf in tree_leaves(result):
            if isinstance(leaf, Tensor) and leaf.untyped_storage().data_ptr() not in before:
                self._made(leaf.untyped_storage())
        return result

    def _made(self, storage: torch.UntypedStorage) -> None:
        address = storage.data_ptr()
        if address in self.live or not storage.nbytes():
            return
        self.live[address] = storage.nbytes()
        self.now += storage.nbytes()
        self.peak = max(self.peak, self.now)
        weakref.finalize(storage, self._gone, address)

    def _gone(self, address: int) -> None:
        self.now -= self.live.pop(address, 0)


def scalar_defaults(kind: BlockType) -> dict[str, Any]:
    """The fields that can be written in YAML, with their defaults; `dataclasses.MISSING` if there is no default."""
    return {f.name: f.default for f in dataclasses.fields(kind.config) if f.name in kind.fields}
