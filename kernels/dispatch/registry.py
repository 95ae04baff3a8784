"""Operations by name: each has a definition, several implementations, and what of them can be configured.

An operation is one file of this package. Its launcher makes the `Problem` of a call (its shapes, dtype and flags) and
asks `kernels.dispatch.tuned` which implementation with which configuration serves it; a `config=` at the call wins
over both.
The tuner finds the operations here, makes inputs for a problem, and compares every implementation with the definition.
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

THREADS = "threads"  # may stand in any configuration for a CPU: the launcher computes on at most so many


@dataclass(frozen=True)
class Problem:
    """What decides how fast an implementation is: where it runs, what of, and how large.

    device: the type, cpu or cuda. dtype: as torch names it, without `torch.`. sizes: by name, in the operation's order.
    flags: whatever else picks another code path, such as causal.
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
        raise KeyError(f"{self} has no {name!r}")

    def __str__(self) -> str:
        sizes = " ".join(f"{name}={value}" for name, value in (*self.sizes, *self.flags))
        return f"{self.operation} {self.device} {self.dtype} {sizes}"


@dataclass(frozen=True)
class Choice:
    """An implementation with a configuration of it."""

    implementation: str
    configuration: tuple[tuple[str, Value], ...] = ()

    @classmethod
    def of(cls, implementation: str, configuration: Configuration | None = None) -> Choice:
        return cls(implementation, tuple(sorted((configuration or {}).items())))

    def __str__(self) -> str:
        settings = " ".join(f"{name}={value}" for name, value in self.configuration)
        return f"{self.implementation} {settings}".strip()


def anywhere(problem: Problem) -> str | None:
    """Runs on every problem."""
    return None


def as_it_is(problem: Problem) -> str | None:
    """Its definition fits the memory."""
    return None


@dataclass(frozen=True)
class Implementation:
    """One way to compute an operation. `call` takes the operation's arguments and the parameters as keywords.

    parameters: the values to choose among; empty where nothing is to be chosen. constraints: what a configuration for a
    problem must keep. default: a documented configuration that works everywhere it runs. suited: what of it is better
    otherwise for a problem. refuses: why it cannot run a problem, None where it can. gradients: whether autograd passes
    through it. files: modules beside that of `call` that hold what it runs, such as kernels imported when used. builds:
    whether its first call for a problem takes seconds, since a compiler looks at it. work: the numbers that it computes
    with (FLOPs) and the bytes that it moves at least, for a configuration of a problem; None where nobody said.
    """

    name: str
    call: Callable[..., Any]
    parameters: Mapping[str, tuple[Value, ...]] = field(default_factory=dict)
    constraints: tuple[Callable[[Configuration, Problem], bool], ...] = ()
    default: Configuration = field(default_factory=dict)
    suited: Callable[[Problem], Configuration] | None = None
    refuses: Callable[[Problem], str | None] = anywhere
    gradients: bool = True
    files: tuple[str, ...] = ()
    builds: bool = False
    work: Callable[[Configuration, Problem], tuple[float, float]] | None = None

    def default_for(self, problem: Problem) -> Configuration:
        """What it is run with before it was tuned."""
        return {**self.default, **(self.suited(problem) if self.suited else {})}

    @property
    def source(self) -> str:
        """The hash of the code that it runs; see `kernels.dispatch.sources`."""
        return hash_of(inspect.unwrap(self.call).__module__, *self.files)


@dataclass(frozen=True)
class Operation:
    """inputs: makes the arguments of a call (positional, keyword) for a problem from a seed, on its device.
    problems: the named shapes that `nas tune` starts with. default: the implementation for a problem that nobody tuned.
    sizes, flags: what those of its problems are called, in order. lean: the implementation that, in float64, stands for
    the definition of a problem whose own answer would fill the memory, None for a problem that is small enough. plain:
    what runs inside `kernels.dispatch.plain()` instead of the definition, where the definition takes a step per
    position, reads numbers back from the device, or has no dropout; it too must be plain PyTorch.
    """

    name: str
    reference: Callable[..., Any]
    implementations: Mapping[str, Implementation]
    inputs: Callable[[Problem, int], tuple[tuple[Any, ...], dict[str, Any]]]
    problems: Callable[[str], Mapping[str, Problem]]
    default: Callable[[Problem], str]
    sizes: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()
    lean: Callable[[Problem], str | None] = as_it_is
    plain: Callable[..., Any] | None = None

    @property
    def in_plain_torch(self) -> Callable[..., Any]:
        """What runs inside `kernels.dispatch.plain()`."""
        return self.plain or self.reference

    def problem(self, device: str, dtype: str, sizes: tuple[int, ...], flags: tuple[Value, ...] = ()) -> Problem:
        """The problem with these sizes and flags, in the operation's order."""
        named = tuple(zip(self.sizes, sizes, strict=True)), tuple(zip(self.flags, flags, strict=True))
        return Problem(self.name, device, dtype, *named)

    def choices(self, problem: Problem) -> list[str]:
        """The implementations that can run `problem`."""
        return [name for name, each in self.implementations.items() if each.refuses(problem) is None]

    def default_choice(self, problem: Problem) -> Choice:
        """What serves `problem` before it was tuned."""
        name = self.default(problem)
        return Choice.of(name, self.implementations[name].default_for(problem))

    def check(self, choice: Choice, problem: Problem) -> None:
        """Raise ValueError where `choice` is none of this operation, or cannot run `problem`."""
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
    """Make `operation` known by its name."""
    _operations[operation.name] = operation
    return operation


def registered(name: str) -> Operation:
    """The operation called `name`, whose file has been imported."""
    return _operations[name]


@cache
def _discover() -> None:
    import kernels

    for module in pkgutil.walk_packages(kernels.__path__, "kernels."):
        if not module.name.endswith("_triton"):  # kernels alone, which need Triton and are imported when they run
            importlib.import_module(module.name)


def operations() -> dict[str, Operation]:
    """Every operation by name, sorted."""
    _discover()
    return dict(sorted(_operations.items()))


def operation(name: str) -> Operation:
    """The operation called `name`. Raises ValueError with the nearest."""
    known = operations()
    if name not in known:
        raise ValueError(f"no operation is called {name!r}.{_nearest(name, known)}")
    return known[name]


def _nearest(name: str, known: Mapping[str, Any]) -> str:
    close = difflib.get_close_matches(name, known, n=1)
    return f" Did you mean {close[0]!r}?" if close else f" Known: {', '.join(known)}."
