"""How to train: the `recipe` of a search file names an optimiser, a schedule and a criterion, with their options.

    recipe: {learning_rate: 3e-3, optimiser: {adamw: {betas: [0.9, 0.98]}}, schedule: linear}

`learning_rate`, `weight_decay` and `betas` may also stand alone, as options of the optimiser; `warmup` and `floor`
may, as options of the schedule.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from types import NoneType
from typing import Any, Literal, TypeVar

import torch
from torch import Tensor, nn

from nas.config.elsewhere import elsewhere
from nas.criteria.registry import Criterion, takes
from nas.criteria.registry import registry as criteria
from nas.errors import UsageError
from nas.options import Number
from nas.registry import UNNAMED, Registry, all_mistakes, checked, nearest
from nas.tasks.contract import Batch, Task, defines_outputs
from nas.training.optimisers.registry import make as make_optimiser
from nas.training.optimisers.registry import registry as optimisers
from nas.training.schedules.registry import Schedule
from nas.training.schedules.registry import registry as schedules
from searchspace.contract import Context

T = TypeVar("T")

LEARNING_RATE = "learning_rate"
OF_THE_OPTIMISER = (LEARNING_RATE, "weight_decay", "betas")
OF_THE_SCHEDULE = ("warmup", "floor")
FLAT = (*OF_THE_OPTIMISER, *OF_THE_SCHEDULE)


@dataclass(frozen=True)
class Part:
    """A thing chosen by name, with its options."""

    name: str
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Recipe:
    """criterion: None uses the criterion of the task. clip: the largest norm of the gradient, 0 for no limit.
    precision: auto is bfloat16 on a GPU that has it, float16 on another GPU, and float32 on a CPU."""

    optimiser: Part = Part("adamw")
    schedule: Part = Part("cosine")
    criterion: Part | None = None
    clip: float = 1.0
    precision: str = "auto"

    @classmethod
    def read(cls, options: Mapping[str, Any]) -> Recipe:
        """The recipe of a search file. Raises UsageError with all unknown names and invalid values."""
        keys = (*OF_THE_OPTIMISER, *OF_THE_SCHEDULE, "optimiser", "schedule", "criterion", "clip", "precision")
        mistakes = [
            f": there is no {name!r}.{elsewhere(name, 'recipe') or nearest(name, keys)} Known: {', '.join(keys)}."
            for name in options
            if name not in keys
        ]

        def attempt(read: Callable[[], T]) -> T | None:
            try:
                return read()
            except UsageError as error:
                mistakes.append(str(error).removeprefix("recipe"))
                return None

        plain = attempt(
            lambda: checked(
                plain_options, {key: options[key] for key in ("clip", "precision") if key in options}, "recipe"
            )
        )
        optimiser = attempt(lambda: _part(optimisers, options.get("optimiser", "adamw"), options, OF_THE_OPTIMISER))
        schedule = attempt(lambda: _part(schedules, options.get("schedule", "cosine"), options, OF_THE_SCHEDULE))
        criterion = options.get("criterion")
        chosen = None if criterion is None else attempt(lambda: _part(criteria, criterion, options, ()))
        if mistakes or optimiser is None or schedule is None:
            raise UsageError(all_mistakes("recipe", mistakes))
        return cls(optimiser, schedule, chosen, **plain or {})

    @property
    def learning_rate(self) -> float:
        """The highest learning rate: as in the recipe, else the default of the optimiser."""
        options = self.optimiser.options
        return float(options.get(LEARNING_RATE) or optimisers.options(self.optimiser.name)[LEARNING_RATE].default)

    def check(self, task: Task) -> None:
        """Raise UsageError if the recipe names a criterion and `task` computes its loss itself or has other targets."""
        if self.criterion is None:
            return
        if not defines_outputs(task):
            raise UsageError(
                f"recipe: criterion is {self.criterion.name}, but the task {type(task).__name__} computes its loss "
                "itself. Leave criterion out, or let the task define `outputs` in place of `loss`."
            )
        if not takes(self.criterion.name, task.target_kind):
            fit = [name for name in criteria.names() if takes(name, task.target_kind)]
            raise UsageError(
                f"recipe: criterion is {self.criterion.name}, but the targets of the task {type(task).__name__} are "
                f"{task.target_kind}. Criteria for these: {', '.join(fit)}."
            )

    def loss(self, task: Task, model: nn.Module, batch: Batch, context: Context) -> Tensor:
        """The mean loss of a batch, a scalar: by the criterion of the recipe, else as the task computes it."""
        if self._criterion is None:
            return task.loss(model, batch, context)
        return self._criterion(*task.outputs(model, batch, context))

    @cached_property
    def _criterion(self) -> Criterion | None:
        return None if self.criterion is None else criteria.make(self.criterion.name, {}, self.criterion.options)

    @cached_property
    def _schedule(self) -> Schedule:
        return schedules.make(self.schedule.name, {}, self.schedule.options)

    def rate(self, peak: float, step: int, horizon: int) -> float:
        """The learning rate of `step`, counted from 0, if `peak` is the highest and training ends at `horizon`."""
        return self._schedule.rate(peak, step, horizon)

    def optimiser_for(self, model: nn.Module) -> torch.optim.Optimizer:
        """The optimiser of the parameters of `model`; each group has its highest learning rate as `lr`."""
        return make_optimiser(self.optimiser.name, model, self.optimiser.options)

    def dtype(self, device: torch.device) -> torch.dtype:
        """The type of matrix products on `device`."""
        if self.precision != "auto":
            return getattr(torch, self.precision)
        if device.type != "cuda":
            return torch.float32
        return torch.bfloat16 if torch.cuda.is_bf16_supported(including_emulation=False) else torch.float16


def complete(recipe: Mapping[str, Any], known: Mapping[str, Any] = {}) -> dict[str, Any]:
    """`recipe` with every option of its parts, as plain data: those of `known` where it leaves them out, else defaults.

    What is written flat, such as `learning_rate`, stays flat.
    """
    from pydantic_core import to_jsonable_python  # not at the top: a machine that only trains may not have it

    read = Recipe.read(recipe)
    found: dict[str, Any] = {"criterion": None, "clip": read.clip, "precision": read.precision}
    for key, registry, part in (
        ("optimiser", optimisers, read.optimiser),
        ("schedule", schedules, read.schedule),
        ("criterion", criteria, read.criterion),
    ):
        if part is None:
            continue
        options = registry.complete(part.name, part.options, (known.get(key) or {}).get(part.name, {}))
        found[key] = {part.name: {name: value for name, value in options.items() if name not in recipe}}
    found |= {name: value for name, value in recipe.items() if name in FLAT}
    plain: dict[str, Any] = to_jsonable_python(found)
    return plain


def replaced(recipe: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """`recipe` with new values for some flat keys, such as `learning_rate`, also if they are options of a part."""
    kept = {key: _without(value, changes) for key, value in recipe.items() if key not in changes}
    return {**kept, **changes}


def _without(part: Any, names: Mapping[str, Any]) -> Any:
    """`{name: options}` without the options of these names; anything else unchanged."""
    if not isinstance(part, Mapping) or len(part) != 1:
        return part
    (name, options), *_ = part.items()
    if not isinstance(options, Mapping):
        return part
    return {name: {key: value for key, value in options.items() if key not in names}}


def plain_options(
    *,
    clip: Number = 1.0,
    precision: Literal["auto", "float32", "bfloat16", "float16"] = "auto",
) -> None:
    """The options that belong to no part."""


def _part(registry: Registry, written: Any, recipe: Mapping[str, Any], flat: tuple[str, ...]) -> Part:
    """The part that is `written` as `name` or `{name: options}`; its options include the `flat` keys of the recipe."""
    kind = registry.kind
    if isinstance(written, Mapping) and len(written) == 1:
        (name, options), *_ = written.items()
    else:
        name, options = written, None
    if not isinstance(name, str) or not isinstance(options, Mapping | NoneType):
        raise UsageError(
            f"recipe: {kind} must be a name, or a name with its options as {{name: {{option: value}}}}, "
            f"but got {written!r}."
        )
    try:
        name, chosen = registry.name(name), dict(options or {})
        for key in flat:
            if key not in recipe:
                continue
            if key in chosen or UNNAMED in chosen:
                raise UsageError(f"{key!r} is written twice, in the recipe and as an option of {kind} {name}.")
            chosen[key] = recipe[key]
        return Part(name, registry.check(name, chosen))
    except UsageError as error:
        raise UsageError(f"recipe: {error}") from error
