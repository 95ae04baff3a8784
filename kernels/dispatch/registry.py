"""Operations by name: each has a definition, several implementations, and parameters that can be configured.

An operation is one file of this package. Its launcher describes a call as a `Problem` (shapes, dtype and flags) and
asks `kernels.dispatch.tuned` which implementation with which configuration runs it; a `config=` at the call overrides
both. The tuner finds the operations here, makes inputs for a problem, and compares each implementation with the
definition.
"""

from __future__ import annotations

import difflib
import importlib
import inspect
import pkgutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from kernels.dispatch.sources import hash_of

Value = bool | int | float | str
Configuration = Mapping[str, Value]

# allowed in all configurations for a CPU: the largest number of threads that the launcher computes on
THREADS = "threads"
OF_TORCH = ("sdpa", "torch")  # implementations that are a function of PyTorch


@dataclass(frozen=True)
class Problem:
    """What decides how fast an implementation is: the device, the dtype, the sizes and the code path.

    device: the type, cpu or cuda. dtype: torch's name without `torch.`. sizes: by name, in the order of the operation.
    flags: everything else that selects a code path, such as causal.
    """

    operation: str
    device: str
    dtype: str
    sizes: tuple[tuple[str, int], ...]
    flags: tuple[tuple[str, Value], ...] = ()

    def __getitem__(self, name: str) -> Any:
        for known, value in (*self.sizes, *self.flags):
            if known == name:
                return value
        raise KeyError(f"{self} has no size or flag {name!r}")

    def __str__(self) -> str:
        sizes = " ".join(f"{name}={value}" for name, value in (*self.sizes, *self.flags))
        return f"{self.operation} {self.device} {self.dtype} {sizes}"


@dataclass(frozen=True)
class Choice:
    """An implementation with a configuration."""

    implementation: str
    configuration: tuple[tuple[str, Value], ...] = ()

    @classmethod
    def of(cls, implementation: str, configuration: Configuration | None = None) -> Choice:
        return cls(implementation, tuple(sorted((configuration or {}).items())))

    def __str__(self) -> str:
        settings = " ".join(f"{name}={value}" for name, value in self.configuration)
        return f"{self.implementation} {settings}".strip()


def nothing(problem: Problem) -> str | None:
    """For what holds for all problems: no reason to refuse, no replacement."""
    return None


@dataclass(frozen=True)
class Implementation:
    """One way to compute an operation. `call` takes the arguments of the operation, and the parameters as keywords.

    parameters   the values to choose from; empty if there is no choice
    constraints  conditions that a configuration must satisfy for a problem
    default      a configuration that works for all problems that it can run
    suited       the parameters for which another value than the default is better for a problem
    refuses      why it cannot run a problem, None if it can
    gradients    whether autograd passes through it
    files        other modules that hold code which it runs, such as kernels that are imported late
    builds       whether the first call for a problem takes seconds because a compiler runs
    work         (FLOPs, bytes moved at least) for a configuration of a problem; None if unknown
    deterministic  whether the same call always gives the same bits; the tuner then checks that
    """

    name: str
    call: Callable[..., Any]
    parameters: Mapping[str, tuple[Value, ...]] = field(default_factory=dict)
    constraints: tuple[Callable[[Configuration, Problem], bool], ...] = ()
    default: Configuration = field(default_factory=dict)
    suited: Callable[[Problem], Configuration] | None = None
    refuses: Callable[[Problem], str | None] = nothing
    gradients: bool = True
    files: tuple[str, ...] = ()
    builds: bool = False
    work: Callable[[Configuration, Problem], tuple[float, float]] | None = None
    deterministic: bool = False

    def default_for(self, problem: Problem) -> Configuration:
        """The configuration before tuning."""
        return {**self.default, **(self.suited(problem) if self.suited else {})}

    @property
    def is_triton(self) -> bool:
        """Whether Triton compiles it."""
        return any(name.endswith("_triton") for name in self.files)

    @property
    def source(self) -> str:
        """The hash of the code that it runs; see `kernels.dispatch.sources`."""
        return hash_of(inspect.unwrap(self.call).__module__, *self.files)


@dataclass(frozen=True)
class Operation:
    """An operation with its definition and its implementations.

    reference        the definition
    implementations  by name
    inputs           makes the arguments of a call (positional, keyword) from a problem and a seed, on its device
    problems         the named problems that `nas tune` starts with, for a type of device
    default          the implementation for a problem that was not tuned
    sizes, flags     the names of the sizes and flags of its problems, in order
    lean             the implementation that replaces the definition, in float64, if the definition would fill the
                     memory; None if the problem is small enough
    plain            plain PyTorch code to run inside `kernels.dispatch.plain()` instead of the definition, if the
                     definition takes one step per position or reads numbers back from the device
    """

    name: str
    reference: Callable[..., Any]
    implementations: Mapping[str, Implementation]
    inputs: Callable[[Problem, int], tuple[tuple[Any, ...], dict[str, Any]]]
    problems: Callable[[str], Mapping[str, Problem]]
    default: Callable[[Problem], str]
    sizes: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()
    lean: Callable[[Problem], str | None] = nothing
    plain: Callable[..., Any] | None = None

    @property
    def in_plain_torch(self) -> Callable[..., Any]:
        """The code that runs inside `kernels.dispatch.plain()`: PyTorch's own function if it is an implementation."""
        own = next((self.implementations[name].call for name in OF_TORCH if name in self.implementations), None)
        return own or self.plain or self.reference

    def problem(self, device: str, dtype: str, sizes: tuple[int, ...], flags: tuple[Value, ...] = ()) -> Problem:
        """The problem with these sizes and flags, in the order of the operation. Raises ValueError if their number is
        wrong.
        """
        named = tuple(zip(self.sizes, sizes, strict=True)), tuple(zip(self.flags, flags, strict=True))
        return Problem(self.name, device, dtype, *named)

    def named(self, device: str, shapes: Mapping[str, tuple[int, ...]], **flags: Value) -> dict[str, Problem]:
        """Problems with these sizes, without and with gradients (`-train`), by name; flags: those that are not False.

        They are in bfloat16 on a GPU, and in float32 on a CPU.
        """
        dtype = "bfloat16" if device == "cuda" else "float32"
        return {
            f"{name}{'-train' if gradients else ''}": self.problem(
                device, dtype, sizes, tuple({**flags, "gradients": gradients}.get(flag, False) for flag in self.flags)
            )
            for name, sizes in shapes.items()
            for gradients in (False, True)
        }

    def choices(self, problem: Problem) -> list[str]:
        """The names of the implementations that can run `problem`."""
        return [name for name, each in self.implementations.items() if each.refuses(problem) is None]

    def default_choice(self, problem: Problem) -> Choice:
        """The choice for a problem that was not tuned."""
        name = self.default(problem)
        return Choice.of(name, self.implementations[name].default_for(problem))

    def check(self, choice: Choice, problem: Problem) -> None:
        """Check `choice` for `problem`. Raises ValueError if it is unknown, invalid, or cannot run the problem."""
        implementation = self.implementations.get(choice.implementation)
        if implementation is None:
            raise ValueError(
                f"{self.name} has no implementation {choice.implementation!r}."
                f"{_nearest(choice.implementation, self.implementations)}"
            )
        if reason := implementation.refuses(problem):
            raise ValueError(f"{self.name}: {choice.implementation} cannot run {problem}: {reason}.")
        for name, value in choice.configuration:
            values = implementation.parameters.get(name)
            if name == THREADS and values is None and problem.device == "cpu" and type(value) is int and value > 0:
                continue
            if values is None:
                raise ValueError(
                    f"{self.name}: {choice.implementation} has no parameter {name!r}."
                    f"{_nearest(name, implementation.parameters)}"
                )
            if value not in values:
                raise ValueError(f"{self.name}: {name} must be one of {list(values)}, but got {value!r}.")
        configuration = {**implementation.default, **dict(choice.configuration)}
        if not all(keeps(configuration, problem) for keeps in implementation.constraints):
            raise ValueError(f"{self.name}: {choice} breaks a constraint of {choice.implementation} for {problem}.")


_operations: dict[str, Operation] = {}


def register(operation: Operation) -> Operation:
    """Register `operation` under its name, and return it."""
    _operations[operation.name] = operation
    return operation


def registered(name: str) -> Operation:
    """The operation called `name`; its file must be imported. Raises KeyError if it is not."""
    return _operations[name]


@cache
def _discover() -> None:
    import kernels

    for module in pkgutil.walk_packages(kernels.__path__, "kernels."):
        if not module.name.endswith("_triton"):  # files of kernels need Triton and are imported when they run
            importlib.import_module(module.name)


def operations() -> dict[str, Operation]:
    """All operations by name, sorted."""
    _discover()
    return dict(sorted(_operations.items()))


def operation(name: str) -> Operation:
    """The operation called `name`. Raises ValueError with the nearest name if there is none."""
    known = operations()
    if name not in known:
        raise ValueError(f"no operation is called {name!r}.{_nearest(name, known)}")
    return known[name]


def _nearest(name: str, known: Mapping[str, Any]) -> str:
    close = difflib.get_close_matches(name, known, n=1)
    return f" Did you mean {close[0]!r}?" if close else f" Known: {', '.join(known)}."
