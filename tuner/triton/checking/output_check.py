"""The correctness check of a user's kernel: a configuration must write what the reference configuration writes.

It runs on copies of the arguments, so that nothing of the user's is touched. Around each copy there are guard zones: a
write into them is an error, and a read from them gives NaN. Each configuration is checked on two sets of inputs: the
user's own, and a set in which whatever the reference writes holds random numbers before, so that an output that is left
out differs. If the user's numbers are constant, as in a trial run on zeros, all of them are random in the second set.
Whole numbers are never random, because a kernel may use them as addresses; those that the reference writes hold what it
wrote before. Where they hold that already, no write shows, so those that the kernel never reads, as its source code
says, hold other numbers at every place (`tuner.triton.checking.written_only`). If none of its runs changes anything, no
check is possible.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from tuner.measure.guards import fill
from tuner.measure.tolerance import difference, equal
from tuner.triton.case import COMPARED, Launch
from tuner.triton.checking.buffers import Buffers, CannotCheck, NothingWritten, copied, flat, has_room, storages
from tuner.triton.checking.holders import UnknownMemory, replaced, tensors
from tuner.triton.checking.written_only import written_only
from tuner.triton.isolation.first_run import finished

GUARD = 2**16  # bytes of each guard zone; a multiple of what allocators align to
TERMS = 4096  # of the sums of a kernel, which are not known
SLACK = 2.0  # on the error model: the reference is rounded too
LONGEST = 60.0  # seconds of a run on a GPU
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
        try:
            self.launch, self.guards = _guarded(launch)
            own = storages(launch.arguments)
        except (UnknownMemory, MemoryError, RuntimeError) as error:
            raise CannotCheck(str(error) or "memory is short") from error
        self.live = {name: self.guards[name][1] if name in self.guards else each for name, each in own.items()}
        self.before = copied(self.live)
        buffers = Buffers(self.launch.arguments, zero, restore, whole=False)
        self.ready = pre_hook or buffers
        self.deterministic, self.seed, self.longest = deterministic, seed, longest
        self.states: list[dict[str, Tensor]] = [self.before]  # contents of the storages before a run
        self.expected: list[dict[str, Tensor]] = []  # what the reference writes from each state
        self.reference: Any = None

    def refer_to(self, config: Any) -> str | None:
        """Run the reference; later configurations are compared with it. Returns the mistake, or None.

        Raises what the configuration raises, and NothingWritten if it changes nothing that its arguments hold.
        """
        self._run(config, self.states[0])
        self.expected = [self._written(self.states[0])]
        self.reference = config
        if reason := self._outside():
            return reason
        other = self._random_state() | self._written_numbers() | self._unread_numbers()
        if other:
            self.states = [self.before, self.before | other]
            self._run(config, self.states[1])
            self.expected.append(self._written(self.states[1]))
        if not any(self.expected):
            raise NothingWritten("the kernel changes nothing that its arguments hold, so a wrong result would not show")
        return self._repeated(config)

    def differs(self, config: Any) -> str | None:
        """How `config` differs from the reference; None if it does not. Raises what the configuration raises."""
        for state, expected in zip(self.states, self.expected, strict=True):
            random = _random_states(self.live)
            self._run(config, state)
            if reason := self._outside() or self._compared(state, expected):
                return reason
            if any(not torch.equal(*each) for each in zip(random, _random_states(self.live), strict=True)):
                return "it changed the state of torch's random numbers"
        return self._repeated(config)

    @property
    def written(self) -> list[str]:
        """The names of the storages that the reference writes."""
        return sorted({name for expected in self.expected for name in expected})

    def release(self) -> None:
        """Restore what has no guarded copy."""
        for name, tensor in self.live.items():
            if name not in self.guards:
                tensor.copy_(self.before[name])

    def restore(self, config: Any, state: Mapping[str, Tensor] | None = None) -> None:
        """Set the arguments to `state`, by default the user's own, and prepare them for `config`."""
        for name, tensor in self.live.items():
            tensor.copy_((self.before if state is None else state)[name])
        for number, (whole, content) in enumerate(self.guards.values()):
            for zone in (whole[:GUARD], whole[-GUARD:]):
                fill(zone, content.dtype, number)
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
        for number, (name, (whole, content)) in enumerate(self.guards.items()):
            fresh = torch.empty_like(whole[:GUARD])
            fill(fresh, content.dtype, number)
            if not (equal(whole[:GUARD], fresh) and equal(whole[-GUARD:], fresh)):
                return f"it writes outside of {name}"
        return None

    def _compared(self, state: Mapping[str, Tensor], expected: Mapping[str, Tensor]) -> str | None:
        for name, found in self.live.items():
            wanted = expected.get(name, state[name])
            if equal(found, wanted):
                continue
            if not found.is_floating_point():
                count = int((found != wanted.to(found.device)).sum())
                reason: str | None = f"differs at {count} of {wanted.numel()} places"
            else:
                reason = difference(
                    found, wanted, found.dtype, length=TERMS, slack=SLACK, before=state[name] if expected else None
                )
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

    def _written_numbers(self) -> dict[str, Tensor]:
        """The storages of whole numbers that the reference writes, as it left them: a kernel may be called again."""
        return {name: each for name, each in self.expected[0].items() if not each.is_floating_point()}

    def _unread_numbers(self) -> dict[str, Tensor]:
        """The storages of whole numbers that the kernel never reads, with all their bits inverted."""
        unread, names = written_only(self.launch.kernel), dict[int, set[str]]()
        for name, tensor, _ in tensors(self.launch.arguments):
            names.setdefault(tensor.untyped_storage().data_ptr(), set()).add(name)
        whole = {name: each for name, each in self.before.items() if not each.is_floating_point()}
        return {
            name: _inverted(each)
            for name, each in whole.items()
            if names[self.live[name].untyped_storage().data_ptr()] <= unread
        }

    def _random_state(self) -> dict[str, Tensor]:
        """Random contents for the storages of numbers that the reference writes; for all of them if all are constant,
        or if it writes nothing that can be seen."""
        numbers = {name: each for name, each in self.before.items() if each.is_floating_point() and each.numel()}
        varied = any(not bool((each == each[0]).all()) for each in numbers.values())
        some = [name for name in numbers if not varied or not self.expected[0] or name in self.expected[0]]
        generator = torch.Generator("cpu").manual_seed(self.seed)
        made = {}
        for name in some:
            noise = torch.empty(numbers[name].shape, dtype=torch.float32, device="cpu").normal_(generator=generator)
            made[name] = noise.to(numbers[name].dtype).to(numbers[name].device)
        return made


def _guarded(launch: Launch) -> tuple[Launch, dict[str, tuple[Tensor, Tensor]]]:
    """The same launch on copies of its tensors, and each copy by name: all of its bytes, and the part between the guard
    zones. A storage keeps its place if it has no room for a copy, or if an argument cannot hold another tensor."""
    fixed, sizes = set(), dict[int, tuple[str, Tensor]]()
    for name, tensor, replaceable in tensors(launch.arguments):
        place = tensor.untyped_storage().data_ptr()
        sizes.setdefault(place, (name, tensor))
        fixed |= set() if replaceable else {place}
    guards: dict[str, tuple[Tensor, Tensor]] = {}
    made: dict[int, Tensor] = {}
    for place, (name, tensor) in sizes.items():
        size = tensor.untyped_storage().nbytes()
        if not size or place in fixed or not has_room(tensor.device, 4 * (size + 2 * GUARD)):
            continue
        whole = torch.empty(size + 2 * GUARD, dtype=torch.uint8, device=tensor.device)
        content = flat(tensor)
        inside = whole[GUARD : GUARD + size].view(content.dtype)
        inside.copy_(content)
        guards[name], made[place] = (whole, inside), whole

    def new(tensor: Tensor) -> Tensor:
        whole = made.get(tensor.untyped_storage().data_ptr())
        if whole is None:
            return tensor
        start = tensor.storage_offset() + GUARD // tensor.element_size()
        empty = torch.empty(0, dtype=tensor.dtype, device=tensor.device)
        return empty.set_(whole.untyped_storage(), start, tensor.shape, tensor.stride())

    arguments = {name: replaced(value, new) for name, value in launch.arguments.items()}
    names = list(launch.kernel.arg_names)[: len(launch.args)]
    args = tuple(arguments[name] for name in names)
    kwargs = {name: arguments[name] for name in launch.kwargs}
    return replace(launch, args=args, kwargs=kwargs, arguments=arguments), guards


def _inverted(numbers: Tensor) -> Tensor:
    if numbers.dtype == torch.bool:
        return numbers.logical_not()
    return numbers.view(torch.uint8).bitwise_not().view(numbers.dtype)


def _random_states(live: Mapping[str, Tensor]) -> list[Tensor]:
    """The states of the generators of random numbers of the devices in use."""
    devices = {each.device for each in live.values() if each.is_cuda}
    return [torch.get_rng_state(), *(torch.cuda.get_rng_state(each) for each in sorted(devices, key=str))]
