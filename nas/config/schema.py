"""The schema of a search file: its keys, their types and their defaults.

A search file says what to search (`space`), on which data (`task`), for what (`objectives`), how (`strategy`,
`scheduler`, `runner`, `recipe`) and for how long (`budget`, `finals`). `nas.config.searchfile` reads it.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PrivateAttr,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)

from nas.errors import StoreError
from nas.options import MOST, Whole
from nas.upkeep.policy import DEFAULT, Keep
from searchspace.language import documents

MOST_PARTS = 100  # objectives, arms or baselines: each is built or read from a file when the search file is checked
MOST_SEED = 2**53  # a larger whole number is rounded in JSON
BARE = ""  # the name of an option that was written without one: `optuna: TPESampler`


class Named(BaseModel):
    """A part chosen by name with its options: written `name` or `{name: {option: value}}`."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    name: str
    options: dict[str, Any] = {}

    def written(self) -> Any:
        """As a search file has it."""
        if self.name == "metric":
            return self.options
        options = self.options[BARE] if set(self.options) == {BARE} else self.options
        return {self.name: options} if options else self.name


def _named(value: Any) -> Any:
    if isinstance(value, Named):
        return value
    if isinstance(value, str):
        return {"name": value}
    if isinstance(value, dict) and "name" in value and set(value) <= {"name", "options"}:
        return value  # as the store keeps it
    if isinstance(value, dict) and len(value) == 1:
        name, options = next(iter(value.items()))
        if options is not None and not isinstance(options, dict):
            options = {BARE: options}
        return {"name": str(name), "options": options or {}}
    raise ValueError("expected a name, or a name with its options as {name: {option: value}}")


def _size(value: Any) -> Any:
    """'2GiB' -> 2147483648; numbers pass."""
    return documents.number(value) if isinstance(value, str) else value


def _objective(value: Any) -> Any:
    """Like `_named`; a metric of the task by its own name is written {metric: accuracy, direction: maximize}."""
    if isinstance(value, dict) and "metric" in value:
        return {"name": "metric", "options": value}
    return _named(value)


def _files(value: Any) -> Any:
    """The names of files, or one name, with empty texts until they are read; a study keeps {name: text}."""
    names = [value] if isinstance(value, str) else value
    if isinstance(names, list | tuple) and all(isinstance(name, str) for name in names):
        return dict.fromkeys(names, "")
    return value


AName = Annotated[Named, BeforeValidator(_named)]
AnObjective = Annotated[Named, BeforeValidator(_objective)]


Few = Field(max_length=MOST_PARTS)
# Numbers that may be written 5M or 2GiB. Text was always a number here: `seed: '0'`.
FromZero = Annotated[Whole, Field(ge=0), BeforeValidator(_size)]
Count = Annotated[FromZero, Field(ge=1)]
Small = Annotated[Count, Field(le=MOST)]
Amount = Annotated[float, Field(strict=True, gt=0, allow_inf_nan=False), BeforeValidator(_size)]
TRAINING = ("steps", "tokens", "flops", "device_seconds")  # limits of a budget on how much is trained


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True)


class Budget(_Section):
    """When a search ends: when the first of its limits is spent.

    trials: how many to start. steps, tokens, flops, device_seconds: how much to train, over all workers. minutes: a
    limit of the time, for how long each worker trains.
    """

    trials: Small | None = None
    steps: Annotated[Count, Field(le=2**53)] | None = None
    tokens: Annotated[Count, Field(le=2**53)] | None = None
    flops: Amount | None = None
    device_seconds: Amount | None = None
    minutes: Amount | None = None

    @model_validator(mode="after")
    def _has_a_limit(self) -> Budget:
        if all(getattr(self, name) is None for name in ("trials", *TRAINING)):
            raise ValueError(f"give at least one of trials, {', '.join(TRAINING)}; minutes alone is not enough")
        return self


def _several(value: Any) -> Any:
    return (value,) if isinstance(value, int | float | str) else value


def _listed(value: Any) -> Any:
    return value if isinstance(value, list | tuple) else (value,)


Match = Literal["parameters", "flops", "state", "latency"]
Proportions = Literal["deep", "wide", "usual"]


class GivenBaseline(_Section):
    """A baseline of the user's own: the file's name, and the text of the architecture."""

    name: str
    text: str


class Finals(_Section):
    """Train the `top` architectures of the search, and strong baselines, again with several seeds.

    steps: the lengths of training; None is the scheduler's last rung and three times that. baselines: names of the zoo
    or YAML files; None is the plain Transformer, the modern one and Primer, as far as they fit the task. Each is
    matched to the winner in every way that `match` names, in the better one of `shapes`. tune: values of recipe options
    that every entrant tries, on one seed at the shortest length; None is a learning rate of half, once and twice that
    of the recipe. winner_steps: lengths below the longest one at which the winner alone is trained, to see how much
    less training it needs.
    """

    top: Annotated[FromZero, Field(le=MOST)] = 0
    seeds: Small = 3
    steps: Annotated[tuple[Small, ...], BeforeValidator(_several), Field(min_length=1)] | None = None
    winner_steps: Annotated[tuple[Small, ...], BeforeValidator(_several)] = ()
    baselines: Annotated[tuple[str | GivenBaseline, ...], BeforeValidator(_several), Few] | None = None
    match: Annotated[tuple[Match, ...], BeforeValidator(_several), Field(min_length=1)] = ("parameters", "flops")
    shapes: Annotated[tuple[Proportions, ...], BeforeValidator(_several), Field(min_length=1)] = ("deep", "wide")
    tune: dict[str, Annotated[tuple[Any, ...], BeforeValidator(_listed), Field(min_length=1)]] | None = None

    @field_validator("steps", "winner_steps")
    @classmethod
    def _ascending(cls, steps: tuple[int, ...] | None) -> tuple[int, ...] | None:
        return steps and tuple(sorted(set(steps)))


class Arm(_Section):
    """A control: its own strategy gets `share` of the trials, and knows only their results.

    architectures: texts of architectures made by hand. An arm with architectures tries only these, in their order.
    """

    strategy: AName = Named(name="random")
    share: Annotated[Amount, Field(lt=1)]
    architectures: Annotated[tuple[str, ...], BeforeValidator(_several), Few] = ()

    @model_validator(mode="after")
    def _has_a_source(self) -> Arm:
        if not (self.architectures or "strategy" in self.model_fields_set):
            raise ValueError("an arm needs a strategy, or a list of architectures")
        return self

    def written(self) -> Any:
        """The form in a search file. A list may get another share if the budget grows."""
        if self.architectures:
            return {"architectures": list(self.architectures)}
        return {"strategy": self.strategy.written(), "share": self.share}


class Limits(_Section):
    """The time limit of a unit, and how many times to try a unit whose worker died."""

    unit_seconds: Amount | None = None
    attempts: Small = 4


STUDY_NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]*$"


def _name(value: str) -> str:
    if not re.fullmatch(STUDY_NAME, value):
        raise ValueError("must begin with a letter from a to z or a digit, and consist of these, `.`, `_` and `-`")
    return value


Name = Annotated[str, AfterValidator(_name)]  # of a study or an arm


class SearchConfig(_Section):
    """A valid search file. `space` is the text of the space, also if the file names another file."""

    study: Name
    space: str
    blocks: Annotated[dict[str, str], BeforeValidator(_files), Few] = {}
    task: AName
    objectives: Annotated[tuple[AnObjective, ...], Field(min_length=1, max_length=MOST_PARTS)]
    strategy: AName = Named(name="auto")
    scheduler: AName
    arms: Annotated[dict[Name, Arm], Few] = {}
    runner: AName = Named(name="inline")
    recipe: dict[str, Any] = {}
    budget: Budget
    baselines: Annotated[tuple[str, ...], Few] = ()
    finals: Finals = Finals()
    limits: Limits = Limits()
    storage: str = "sqlite:///runs/{study}.db"
    checkpoints: str | None = "runs/{study}"
    keep: Keep = DEFAULT
    device: str = "cpu"
    seed: Annotated[FromZero, Field(le=MOST_SEED)] = 0
    task_source: str | None = None  # the text of the user's own task file, once it is read
    vocabulary: dict[str, Any] | None = None  # of the task, once its data are read
    data_facts: dict[str, Any] | None = None  # what the task told of its data when the study was created
    learned: dict[str, Any] = {}  # results of the studies in `learn_from`, as they were when the study was created
    step_tokens: int | None = None  # positions that a training step of the task reads, once a study is made

    _built: Any = PrivateAttr(None)

    @property
    def main_share(self) -> float:
        """The share of the budget that the other arms leave to the search itself."""
        return 1 - sum(arm.share for arm in self.arms.values())

    @property
    def built(self) -> Any:
        """The parts (`nas.config.parts`) that were built from this config, or from one that it is a copy of."""
        return self._built

    @classmethod
    def stored(cls, config: Any) -> Self:
        """The search file of a study, as the database keeps it. Raises StoreError if it is not valid."""
        try:
            return cls.model_validate(config)
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            place = ".".join(map(str, first["loc"]))
            raise StoreError(f"The stored configuration of the study is not valid: {place}: {first['msg']}.") from None

    def keep_built(self, parts: Any) -> None:
        """Keep the parts that were built from this config."""
        self._built = parts

    @field_validator("storage", "checkpoints")
    @classmethod
    def _fill_in(cls, value: str | None, info: ValidationInfo) -> str | None:
        return value and value.replace("{study}", info.data.get("study", ""))

    @field_validator("arms")
    @classmethod
    def _share(cls, arms: dict[str, Arm]) -> dict[str, Arm]:
        if "main" in arms:
            raise ValueError("main is the search itself: its strategy is `strategy`, and its share is what is left")
        if (shares := sum(arm.share for arm in arms.values())) > 1 - 1e-9:
            message = "the shares of the arms must sum to less than 1, so that the search itself has a share"
            raise ValueError(f"{message}; they sum to {shares:g}")
        return arms


# Filled in when the file is read or the study is created, and kept with the study.
HIDDEN = ("task_source", "vocabulary", "data_facts", "learned", "step_tokens")
