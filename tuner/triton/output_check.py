"""The correctness check of a user's kernel: a configuration must write what the reference configuration writes.

It runs on copies of the arguments, so that nothing of the user's is touched. Around each copy there are guard zones: a
write into them is an error, and a read from them gives NaN. Each configuration is checked on two sets of inputs: the
user's own, and a set in which whatever the kernel may write holds something else before, so that an output that is left
out, or a configuration that needs a buffer of zeros, differs. If the user's numbers are constant, as in a trial run on
zeros, all of them are random in the second set. Whole numbers are never random, because a kernel may use them as
addresses; those that the reference writes hold what it wrote before. Where they hold that already, no write shows, so
those that the kernel never reads, as its source code says (`tuner.triton.uses`), hold other numbers at every place. If
none of its runs changes anything, no check is possible.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from tuner.measure.guards import Guards
from tuner.measure.tolerance import difference, equal
from tuner.triton.case import COMPARED, Launch
from tuner.triton.copies import Buffers, CannotCheck, NothingWritten, copied, has_room, replaced, storages, tensors
from tuner.triton.isolation import LONGEST, finished
from tuner.triton.uses import only

GUARD = 2**16  # bytes of each guard zone; a multiple of what allocators align to
TERMS = 4096  # of the sums of a kernel, which are not known
SLACK = 2.0  # on the error model: the reference is rounded too
REPEATS = 3  # runs of a kernel that declares itself deterministic


class OutputCheck:
    """The check of one call. deterministic: repeated runs must agree in every bit. longest: seconds that a run on a GPU
    may take. Raises CannotCheck if the arguments cannot be copied or point to memory that cannot be found."""

    def __init__(
        self,
        launch: Launch,
        zero: Sequence[str] = (),
        restore: Sequence[str] = (),
        *,
        deterministic: bool = False,
        seed: int = 0,
        pre_hook: Callable[..., Any] | None = None,
        longest: float = LONGEST,
    ) -> None:
        self.launch, self.live, self.guards = _guarded(launch)
        self.before = copied(self.live)
        self.ready = pre_hook or Buffers(self.launch.arguments, zero, restore, whole=False)
        self.deterministic, self.seed, self.longest = deterministic, seed, longest
        self.states: list[dict[str, Tensor]] = [self.before]  # contents of the storages before a run
        self.expected: list[dict[str, Tensor]] = []  # what the reference writes from each state

    def renewed(self) -> OutputCheck:
        """The same check on the same copies, without a reference."""
        check = copy(self)
        check.expected = []
        return check

    def refer_to(self, config: Any) -> str | None:
        """Run the reference; later configurations are compared with it. Returns the mistake, or None.

        Raises what the configuration raises, and NothingWritten if it changes nothing that its arguments hold.
        """
        self.states = [self.before]
        self._run(config, self.before)
        self.expected = [self._written(self.before)]
        if reason := self._outside():
            return reason
        if other := self._other_contents():
            self.states.append(self.before | other)
            self._run(config, self.states[1])
            self.expected.append(self._written(self.states[1]))
        if not any(self.expected):
            raise NothingWritten("the kernel changes nothing that its arguments hold, so a wrong result would not show")
        return self._repeated(config)

    def differs(self, config: Any) -> str | None:
        """How `config` differs from the reference; None if it does not. Raises what the configuration raises."""
        for state, expected in zip(self.states, self.expected, strict=True):
            random = self._random_states()
            self._run(config, state)
            if reason := self._outside() or self._compared(state, expected):
                return reason
            if any(not torch.equal(*each) for each in zip(random, self._random_states(), strict=True)):
                return "it changed the state of torch's random numbers"
        return self._repeated(config)

    @property
    def written(self) -> list[str]:
        """The names of the storages that the reference writes."""
        return sorted({name for expected in self.expected for name in expected})

    def release(self) -> None:
        """Restore what has no guarded copy."""
        for name in self.live.keys() - self.guards.keys():
            self.live[name].copy_(self.before[name])

    def restore(self, config: Any, state: Mapping[str, Tensor] | None = None) -> None:
        """Set the arguments to `state`, by default the user's own, and prepare them for `config`."""
        for name, tensor in self.live.items():
            tensor.copy_((self.before if state is None else state)[name])
        for each in self.guards.values():
            each.refill()
        self.launch.prepare(config, self.ready)

    def _run(self, config: Any, state: Mapping[str, Tensor]) -> None:
        self.restore(config, state)
        self.launch.run(config)
        finished(self.live.values(), self.longest)

    def _written(self, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Copies of the storages that differ from `state`."""
        return copied({name: each for name, each in self.live.items() if not equal(each, state[name])})

    def _outside(self) -> str | None:
        """Which guard zone was written; None if none was."""
        name = next((name for name, each in self.guards.items() if each.written()), None)
        return name and f"it writes outside of {name}"

    def _compared(self, state: Mapping[str, Tensor], expected: Mapping[str, Tensor]) -> str | None:
        for name, found in self.live.items():
            wanted = expected.get(name, state[name])
            if equal(found, wanted):
                continue
            if not found.is_floating_point():
                count = int((found != wanted.to(found.device)).sum())
                reason: str | None = f"differs at {count} of {wanted.numel()} places"
            else:
                before = state[name] if expected else None
                reason = difference(found, wanted, found.dtype, length=TERMS, slack=SLACK, before=before)
            if reason:
                return f"{name} {reason}, {COMPARED}"
        return None

    def _repeated(self, config: Any) -> str | None:
        """Whether more runs from the last state differ in any bit, for a kernel that declares that they do not."""
        if not self.deterministic:
            return None
        first = copied(self.live)
        for _ in range(REPEATS - 1):
            self._run(config, self.states[-1])
            if name := next((name for name, each in self.live.items() if not equal(each, first[name])), None):
                return f"{name} differs between two runs, but the kernel is declared deterministic"
        return None

    def _other_contents(self) -> dict[str, Tensor]:
        """Other contents for the storages that the kernel may write; for all of numbers if all of these are constant,
        or if it writes nothing that can be seen."""
        held: dict[int, set[str]] = {}
        for name, tensor in tensors(self.launch.arguments):
            held.setdefault(tensor.untyped_storage().data_ptr(), set()).add(name)
        names = {name: held[each.untyped_storage().data_ptr()] for name, each in self.live.items()}
        unread, inputs, written = only(self.launch.kernel, "store"), only(self.launch.kernel, "load"), self.expected[0]
        numbers = {name: each for name, each in self.before.items() if each.is_floating_point() and each.numel()}
        every = not written or all(_is_constant(each) for each in numbers.values())
        generator = torch.Generator("cpu").manual_seed(self.seed)
        made = {}
        for name, each in numbers.items():
            if every or name in written or not names[name] <= inputs:
                new = _noise if every or name in written or _is_constant(each) else _scaled
                made[name] = new(each, generator)
        whole = {name: each for name, each in self.before.items() if not each.is_floating_point()}
        made |= {name: written[name] for name in whole if name in written}
        return made | {name: _inverted(each) for name, each in whole.items() if names[name] <= unread}

    def _random_states(self) -> list[Tensor]:
        """The states of the generators of random numbers of the devices in use."""
        devices = {each.device for each in self.live.values() if each.is_cuda}
        return [torch.get_rng_state(), *(torch.cuda.get_rng_state(each) for each in sorted(devices, key=str))]


def _is_constant(numbers: Tensor) -> bool:
    return bool((numbers == numbers[0]).all())


def _noise(numbers: Tensor, generator: torch.Generator) -> Tensor:
    made = torch.empty(numbers.shape, dtype=torch.float32, device="cpu").normal_(generator=generator)
    return made.to(numbers.dtype).to(numbers.device)


def _scaled(numbers: Tensor, generator: torch.Generator) -> Tensor:
    """Each number smaller by up to a half, so that what it means is still valid; zeros, and what is not finite, become
    numbers of the usual size."""
    wide = numbers.to("cpu", torch.float64)
    plain = wide.isfinite() & (wide != 0)
    usual = wide[plain].abs().mean() if bool(plain.any()) else torch.ones((), dtype=torch.float64)
    factor = torch.empty(wide.shape, dtype=torch.float64, device="cpu").uniform_(0.5, 1.0, generator=generator)
    return (factor * torch.where(plain, wide, usual)).to(numbers.dtype).to(numbers.device)


def _inverted(numbers: Tensor) -> Tensor:
    if numbers.dtype == torch.bool:
        return numbers.logical_not()
    return numbers.view(torch.uint8).bitwise_not().view(numbers.dtype)


def _guarded(launch: Launch) -> tuple[Launch, dict[str, Tensor], dict[str, Guards]]:
    """The same launch on copies of its tensors; the storages in use, each as [N], and the guard zones of the copies, by
    name. A storage keeps its place if there is no room for a copy."""
    live, guards, made = storages(launch.arguments), dict[str, Guards](), dict[int, Tensor]()
    try:
        for name, content in list(live.items()):
            if has_room(content.device, 4 * (content.nbytes + 2 * GUARD)):
                guards[name] = Guards(GUARD, float("inf"))
                live[name] = made[content.untyped_storage().data_ptr()] = guards[name].copy(content)
    except (MemoryError, RuntimeError) as error:  # torch's out-of-memory error is a RuntimeError
        raise CannotCheck(str(error) or "memory is short") from error

    def new(tensor: Tensor) -> Tensor:
        whole = made.get(tensor.untyped_storage().data_ptr())
        if whole is None:
            return tensor
        start = whole.storage_offset() * whole.element_size() // tensor.element_size() + tensor.storage_offset()
        empty = torch.empty(0, dtype=tensor.dtype, device=tensor.device)
        return empty.set_(whole.untyped_storage(), start, tensor.shape, tensor.stride())

    arguments = {name: replaced(value, new) for name, value in launch.arguments.items()}
    names = list(launch.kernel.arg_names)[: len(launch.args)]
    args = tuple(arguments[name] for name in names)
    kwargs = {name: arguments[name] for name in launch.kwargs}
    return replace(launch, args=args, kwargs=kwargs, arguments=arguments), live, guards
