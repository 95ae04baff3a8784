"""The registry that everything found by name uses, and how options are read from a signature."""

import importlib
import subprocess
import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, Field

from nas.errors import UsageError
from nas.registry import UNNAMED, Registry, checked, nearest, options

if TYPE_CHECKING:
    from decimal import Decimal


class Model(BaseModel):
    depth: int = 1


class Plain:
    """A class that pydantic does not know."""


class Base:
    def __init__(self, *, seed: int, rate: Annotated[float, Field(gt=0)] = 0.1) -> None:
        self.seed, self.rate = seed, rate


class Inherits(Base):
    pass


class Full:
    def __init__(
        self,
        space: "NotImportedAnywhere",  # noqa: F821
        *,
        size: Annotated[int, Field(ge=1)],
        kind: Literal["one", "two"] = "one",
        steps: tuple[int, ...] = (1, 2),
        model: Model | None = None,
        plain: Plain | None = None,
        money: "Decimal | None" = None,
    ) -> None:
        if kind == "two" and size == 1:
            raise ValueError("two needs a size of 2 or more.")
        self.given = {"size": size, "kind": kind, "steps": steps, "model": model, "plain": plain, "money": money}


@dataclass(frozen=True)
class Data:
    width: int
    names: list[str] = field(default_factory=list)


def function(path: str, limit: int = 3, *rest: int, **more: float) -> tuple:
    return path, limit, rest, more


def nothing() -> str:
    return "nothing"


@pytest.fixture
def registry():
    made = Registry("thing", "tests.nas.no_such_package", given=("space",))
    made.__dict__["_all"] = made._things  # nothing to discover
    made.register("full")(Full)
    made.register("data")(Data)
    made.register("inherits")(Inherits)
    made.register("function")(function)
    made.register("nothing")(nothing)
    return made


@pytest.mark.parametrize("name", ["full", "data"])
def test_a_name_has_one_meaning(registry, name):
    with pytest.raises(ValueError, match=f"The thing '{name}' is defined twice"):
        registry.register(name)(Plain)


def test_the_same_thing_may_be_registered_again_as_when_its_module_is_reloaded(registry):
    registry.register("full")(Full)
    assert registry.find("full") is Full


def test_an_unknown_name_is_told_with_the_nearest_and_all(registry):
    known = "Known: data, full, function, inherits, nothing"
    with pytest.raises(UsageError, match=rf"No thing is called 'ful'\. Did you mean 'full'\? {known}\."):
        registry.find("ful")
    with pytest.raises(UsageError, match=rf"No thing is called 'qqq'\. {known}\."):
        registry.options("qqq")


@pytest.mark.parametrize(
    "name, expected",
    [
        ("full", ["size", "kind", "steps", "model", "plain", "money"]),
        ("data", ["width", "names"]),
        ("inherits", ["seed", "rate"]),
        ("function", ["path", "limit"]),
        ("nothing", []),
    ],
)
def test_the_options_are_the_parameters_that_the_caller_does_not_give(registry, name, expected):
    assert list(registry.options(name)) == expected
    assert list(options(registry.find(name), given=("space",))) == expected


def test_values_are_converted_to_the_declared_types(registry):
    written = {"size": 2, "steps": [3, 4], "model": {"depth": 5}, "plain": (plain := Plain()), "money": "1.5"}
    made = registry.make("full", {"space": None}, written)
    assert made.given == {
        "size": 2, "kind": "one", "steps": (3, 4), "model": Model(depth=5), "plain": plain, "money": "1.5",
    }  # fmt: skip
    assert registry.make("data", {}, {"width": 3, "names": ["a"]}) == Data(3, ["a"])
    assert registry.make("function", {}, {"path": "x", "scale": 0.5}) == ("x", 3, (), {"scale": 0.5})
    assert registry.make("inherits", {}, {"seed": 1, "rate": 1}).rate == 1.0


def test_an_option_without_its_name_is_the_first(registry):
    assert registry.make("full", {"space": 0}, {UNNAMED: 7}).given["size"] == 7
    assert registry.make("function", {}, {UNNAMED: "x", "limit": 1}) == ("x", 1, (), {})
    assert registry.complete("function", {UNNAMED: "x"}, {"path": "y", "scale": 2}) == {
        "path": "x", "limit": 3, "scale": 2,
    }  # fmt: skip
    assert registry.complete("full", {"size": 1}).keys() == {"size", "kind", "steps", "model", "plain", "money"}
    with pytest.raises(UsageError, match="thing 'nothing' takes no options, but got 7"):
        registry.make("nothing", {}, {UNNAMED: 7})


@pytest.mark.parametrize(
    "name, written, message",
    [
        ("full", {}, r"thing 'full' needs the option 'size'"),
        ("full", {"size": 0}, r"thing 'full', option 'size': must be greater than or equal to 1, but got 0"),
        ("full", {"size": 1e30}, r"option 'size': must be a smaller whole number, but got 1e\+30"),
        ("full", {"size": True}, r"option 'size': must be a number, but got True"),
        ("inherits", {"seed": 1, "rate": float("inf")}, r"option 'rate': must be a finite number, but got inf"),
        ("inherits", {"seed": 1, "rate": 10**400}, r"option 'rate': must be a valid number, but got 1000"),
        ("inherits", {"seed": 1, "rate": True}, r"option 'rate': must be a number, but got True"),
        ("full", {"size": 1, "steps": [1, "x"]}, r"option 'steps\.1': must be a valid integer.* but got 'x'"),
        ("full", {"size": 1, "kind": "tow"}, r"option 'kind': must be 'one' or 'two', but got 'tow'\. Did you"),
        ("full", {"size": 1, "model": {"depth": "x"}}, r"option 'model\..*depth': must be a valid integer"),
        ("full", {"size": 1, "plain": 3}, r"option 'plain': must be an instance of Plain, but got 3"),
        ("full", {"siez": 1}, r"has no option 'siez'\. Did you mean 'size'\? Its options: size, kind, steps"),
        ("full", {"space": 1, "size": 1}, r"thing 'full' has no option 'space'"),
        ("full", {3: 1, "size": 1}, r"thing 'full' has no option 3\. Its options: size"),
        ("full", {"size": 1, "kind": "two"}, r"thing 'full': two needs a size of 2 or more"),
        ("inherits", {"seed": 1, "rate": 0}, r"option 'rate': must be greater than 0, but got 0"),
        ("data", {"width": "wide"}, r"thing 'data', option 'width': must be a valid integer"),
        ("function", {"limit": 3}, r"thing 'function' needs the option 'path'"),
        ("nothing", {"x": 3}, r"thing 'nothing' has no option 'x'\. It takes no options\."),
    ],
)
def test_says_what_is_wrong_with_the_options(registry, name, written, message):
    with pytest.raises(UsageError, match=message):
        registry.make(name, {"space": None} if name == "full" else {}, written)


@settings(max_examples=25)
@given(st.dictionaries(st.sampled_from(["width", "names"]), st.one_of(st.integers(), st.lists(st.text()), st.none())))
def test_options_are_valid_exactly_if_they_have_the_declared_types(written):
    width, names = written.get("width"), written.get("names", [])
    if isinstance(width, int) and isinstance(names, list):
        assert checked(Data, written, "data") == written
    else:
        with pytest.raises(UsageError, match=r"^data"):
            checked(Data, written, "data")


def test_types_that_are_equal_but_read_text_differently_keep_their_order():
    def first(value: int | float): ...
    def second(value: float | int): ...

    assert [type(checked(each, {"value": "3"}, "thing")["value"]) for each in (first, second)] == [int, float]
    assert [type(checked(each, {"value": "3"}, "thing")["value"]) for each in (second, first)] == [float, int]


def test_a_type_that_cannot_be_hashed_is_checked_too():
    def thing(value: Annotated[int, {"unit": "metres"}]): ...

    assert checked(thing, {"value": 3}, "thing") == {"value": 3}
    with pytest.raises(UsageError, match="must be a valid integer"):
        checked(thing, {"value": "x"}, "thing")


def test_of_several_types_a_message_says_what_each_accepts():
    def thing(
        start: Literal["auto"] | Annotated[int, Field(ge=1)] = "auto", near: str | dict[str, int] | None = None
    ): ...

    with pytest.raises(UsageError, match="option 'start': must be 'auto' or greater than or equal to 1, but got 0"):
        checked(thing, {"start": 0}, "thing")
    with pytest.raises(UsageError, match=r"option 'near\.a': must be a valid integer"):
        checked(thing, {"start": 1, "near": {"a": "x"}}, "thing")


@given(st.text(min_size=1), st.lists(st.text(min_size=1), unique=True))
def test_the_nearest_name_is_one_of_the_known(name, known):
    hint = nearest(name, known)
    assert hint == "" or hint in {f" Did you mean {each!r}?" for each in known}
    assert nearest(name, [*known, name]) == f" Did you mean {name!r}?"


def test_without_pydantic_names_are_checked_and_values_are_not(registry, monkeypatch):
    monkeypatch.setitem(sys.modules, "pydantic", None)
    assert registry.make("data", {}, {"width": "wide"}) == Data("wide")
    assert registry.make("data", {}, {UNNAMED: 3}) == Data(3)
    with pytest.raises(UsageError, match=r"has no option 'widht'\. Did you mean 'width'\?"):
        registry.make("data", {}, {"widht": 3})
    with pytest.raises(UsageError, match="needs the option 'width'"):
        registry.make("data", {}, {})


def test_importing_the_registry_imports_no_pydantic():
    code = "import sys, nas.registry; print('pydantic' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "False"


def test_modules_are_found_in_a_package_and_in_those_inside_it(tmp_path, monkeypatch):
    package = tmp_path / "found_by_name"
    (package / "inner").mkdir(parents=True)
    text = "from found_by_name import registry\n\n@registry.register({0!r})\ndef thing(): return {0!r}\n"
    (package / "__init__.py").write_text("from nas.registry import Registry\nregistry = Registry('t', __name__)\n")
    (package / "inner" / "__init__.py").write_text("")
    (package / "outer.py").write_text(text.format("outer"))
    (package / "inner" / "deep.py").write_text(text.format("deep"))
    (package / "_part.py").write_text("raise RuntimeError('parts are not looked through')\n")
    monkeypatch.syspath_prepend(tmp_path)
    registry = importlib.import_module("found_by_name").registry
    assert registry.find("outer")() == "outer"
    assert "found_by_name.inner.deep" not in sys.modules, "the module of that name has it"
    assert registry.names() == ["deep", "outer"]
    assert registry.make("deep", {}, {}) == "deep"


def test_all_mistakes_of_one_part_are_told_together():
    with pytest.raises(UsageError) as caught:
        checked(Full, {"siez": 1, "kind": "tow", "steps": ["x"]}, "thing 'full'", ("space",))
    first, *mistakes = str(caught.value).splitlines()
    assert first == "thing 'full' has 4 mistakes:"
    hints = ("no option 'siez'. Did you mean 'size'?", "Did you mean 'two'?", "'steps.0'", "needs the option 'size'")
    assert all(hint in mistake for hint, mistake in zip(hints, mistakes, strict=True))
