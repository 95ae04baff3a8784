"""The reference of all blocks, from their own code: `python -m searchspace.reference > docs/blocks.md`.

Nothing is written twice. The text comes from the docstring of the block's module: its first line, its formula, and the
papers that it cites. Options come from the configuration class: names, types and defaults from its fields, meanings
from its docstring ("`name`: meaning.") or from the comment behind the field. Capabilities and costs come from the
block itself.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Iterator
from dataclasses import MISSING, asdict, dataclass
from functools import cached_property
from typing import Any

from searchspace import registry
from searchspace.contract import Given
from searchspace.cost import Shape
from searchspace.language import schema
from searchspace.language.holes import plain
from searchspace.lines import human, human_bytes
from searchspace.registry import BlockType, Role
from searchspace.tree import Block

ROLES: tuple[Role, ...] = ("model", "block", "norm", "position")
WIDTH, LENGTH = 256, 1024  # for which costs are shown
LONGER = 8  # how many times longer the sequence is that growth is read from

COMMON = {
    "activation": "the activation function",
    "bias": "whether the linear maps have a bias",
    "directions": "both directions, or forward only",
    "dropout": "the probability of dropout",
    "eps": "a small number that keeps the denominator above zero",
    "body": "the blocks of the model",
    "columns": "number of columns of the grid",
    "embedding_start": "the initial scale of the token embedding",
    "expand": "the hidden width as a multiple of the width",
    "final_norm": "the norm after the last block",
    "heads": "number of heads",
    "hidden": "the hidden width; null takes `expand` times the width",
    "kernel": "kernel size: number of positions that are read, including the position itself",
    "norm": "the normalisation",
    "of": "the blocks inside",
    "over": "`self` reads the sequence itself, `memory` the output of the encoder",
    "position": "the position encoding",
    "rows": "number of rows of the grid",
    "scale_embedding": "whether token embeddings are multiplied by sqrt(C)",
    "seed": "the random seed",
    "tie_embeddings": "whether the output layer shares the weights of the token embedding",
    "times": "number of steps",
    "vocabulary": "number of tokens",
    "width": "the width of the model",
    "window": "number of positions in the window",
}
"""Meanings of options that many blocks have, used where a block does not describe its own."""

WORDS = {
    "causal": "causal",
    "bidirectional": "bidirectional",
    "cross": "cross-attention",
    "streaming": "streaming",
    "source": "keys from a longer sequence",
    "turned": "rotary positions",
    "changes_length": "a change of the length",
    "selects": "selection by content",
    "pointwise": "pointwise",
    "ragged": "several documents in a row in one call",
}
"""What the reference calls the capabilities of `searchspace.contract.Capabilities`."""

_URL = re.compile(r"https?://[^\s,;()]+[^\s,;().:]")
_AUTHORS = r"(?:[A-Z][\w'-]+(?:, | & | and | et al\. | ))+"
_CITED = re.compile(rf'({_AUTHORS}(?:19|20)\d\d,? (?:"[^"]+",? )?)(https?://[^\s,;()]+[^\s,;().:])')
_MATHS = re.compile(r"\S = |softmax\(|sqrt\(")
_ABBREVIATIONS = ("et al.", "eq.", "i.e.", "e.g.", "fig.", "sec.")


@dataclass(frozen=True)
class Option:
    """One option of a block. default: as written in YAML; None if the option has none and must be written."""

    name: str
    type: str
    default: str | None
    meaning: str


@dataclass(frozen=True)
class Entry:
    """What is known about one block."""

    kind: BlockType

    @cached_property
    def _text(self) -> str:
        return inspect.cleandoc(sys.modules[self.kind.module.__module__].__doc__ or "")

    @property
    def summary(self) -> str:
        """The first paragraph of the docstring."""
        return _joined(self._text.partition("\n\n")[0])

    @property
    def papers(self) -> list[dict[str, str]]:
        """The papers that the docstring cites: `citation` and `url`."""
        text = _joined(self._text)
        cited = {url: citation.strip(" ,") for citation, url in _CITED.findall(text)}
        return [{"citation": cited.get(url, ""), "url": url} for url in dict.fromkeys(_URL.findall(text))]

    @property
    def formula(self) -> str:
        """The line `Formula: ...` of the docstring, or else its first sentence with a formula; "" if there is none."""
        marked = re.search(r"^Formula: (.+?)(?:\n\n|\Z)", self._text, re.M | re.S)
        if marked:
            return _joined(marked[1])
        body = _joined(self._text.partition("\n\n")[2])
        for sentence in _sentences(body):
            if not sentence.startswith("B batch") and _MATHS.search(sentence):
                return re.sub(r"^.*https?://\S+?,?(?: [^:=]*)?: ", "", sentence).rstrip(".")
        return ""

    @property
    def capabilities(self) -> dict[str, bool]:
        """The declared capabilities by name; empty for models, norms and positions."""
        return asdict(self.kind.module.capabilities) if self.kind.role == "block" else {}

    @property
    def options(self) -> list[Option]:
        meanings = self._meanings()
        return [
            Option(
                name=name,
                type=schema.accepts.__wrapped__(
                    field.type
                ).expected,  # its cache takes Literals of another order for equal
                default=_default(schema.default(field)),
                meaning=meanings.get(name, COMMON.get(name, "")),
            )
            for name, field in self.kind.fields.items()
        ]

    def _meanings(self) -> dict[str, str]:
        config = self.kind.config
        known = "|".join(map(re.escape, self.kind.fields))
        if not known:
            return {}
        comments = re.findall(rf"^    ({known}): .*?  # (.+)$", inspect.getsource(config), re.M)
        found = dict(comments)
        for each in reversed(config.__mro__):
            text = each.__dict__.get("__doc__") or ""
            if not text.startswith(f"{each.__name__}("):  # the one that `dataclass` writes
                found |= _described(inspect.cleandoc(text), known)
        return found

    @property
    def cost(self) -> str:
        """Costs at one width and length, and how they grow with the length; "" for blocks that hold others."""
        configured = self._configured()
        if configured is None:
            return ""
        small, large = (configured.cost(Shape(length=n, memory=n)) for n in (LENGTH, LENGTH * LONGER))
        parts = [
            f"{human(small.parameters)} parameters",
            f"{human(small.expected_flops)} FLOPs, {_growth(small.expected_flops, large.expected_flops)}",
        ]
        if small.state_bytes:
            parts.append(f"{human_bytes(small.state_bytes)} of state, {_growth(small.state_bytes, large.state_bytes)}")
        return f"At width {WIDTH} and {LENGTH:,} positions: " + "; ".join(parts) + "."

    def _configured(self) -> registry.Configured | None:
        """The block with its defaults, where it can be used alone."""
        if self.kind.role == "model" or any(field.role for field in self.kind.fields.values()):
            return None
        for given in (Given(dim=WIDTH, causal=True), Given(dim=WIDTH), Given(dim=WIDTH, causal=True, memory=True)):
            try:
                block = schema.complete(Block(self.kind.name, {}))
                return registry.configure(block, given, self.kind.role)
            except ValueError:
                continue
        return None

    def as_dict(self) -> dict[str, Any]:
        """Everything as plain data."""
        return {
            "name": self.kind.name,
            "role": self.kind.role,
            "family": self.kind.family,
            "summary": self.summary,
            "formula": self.formula,
            "papers": self.papers,
            "options": [asdict(option) for option in self.options],
            "capabilities": self.capabilities,
            "cost": self.cost,
        }


def entries(name: str | None = None, *, role: str | None = None, family: str | None = None) -> list[Entry]:
    """The blocks, by role and name; with `name` those with that name.

    Raises SpaceError with the nearest name if there is no such block, role or family.
    """
    every = [kind for each in ROLES for kind in registry.block_types(each).values()]
    _check("role", role, ROLES)
    _check("family", family, sorted({kind.family for kind in every}))
    if name is not None:
        name = registry.block_type(name, role if role in ROLES else None).name
    return [
        Entry(kind)
        for kind in every
        if role in (None, kind.role) and family in (None, kind.family) and name in (None, kind.name)
    ]


def text(entry: Entry) -> str:
    """One block for a terminal."""
    found = entry.as_dict()
    lines = [f"{found['name']}  ({_place(entry)})", found["summary"], ""]
    lines += [f"formula   {found['formula']}"] if found["formula"] else []
    lines += [f"paper     {_cited(paper)}" for paper in found["papers"]]
    lines += [f"supports  {_capable(entry)}"] if found["capabilities"] else []
    lines += [f"cost      {found['cost']}"] if found["cost"] else []
    lines += ["", "options" if entry.options else "It has no options."]
    wide = max((len(option.name) for option in entry.options), default=0)
    for option in entry.options:
        lines.append(f"  {option.name.ljust(wide)}  {option.meaning}; {_typed(option)}")
    return "\n".join(lines)


def page() -> str:
    """All blocks as a Markdown page."""
    parts = [HEAD]
    for role in ROLES:
        parts.append(f"## {TITLES[role]}\n")
        parts += [_section(entry) for entry in entries(role=role)]
    return "\n".join(parts)


HEAD = """\
# Blocks

This page describes every block: formula, paper, options and costs. `nas blocks NAME` prints one of them, and
[language.md](language.md) shows how to combine them into architectures and spaces. `python -m searchspace.reference >
docs/blocks.md` makes this page from the code of the blocks. A test checks that it is up to date.

In formulas, B is the batch size, T the number of positions, C the width of the model, H the number of heads and D the
width of one head. Costs are for one sequence in float32.
"""
TITLES = {
    "model": "Models",
    "block": "Blocks",
    "norm": "Norms",
    "position": "Positions",
}


def _section(entry: Entry) -> str:
    found = entry.as_dict()
    lines = [f"### {found['name']}", "", f"{found['summary']} ({_place(entry)})", ""]
    lines += [f"- Formula: `{found['formula']}`"] if found["formula"] else []
    lines += [f"- Paper: {_cited(paper)}" for paper in found["papers"]]
    lines += [f"- Supports: {_capable(entry)}"] if found["capabilities"] else []
    lines += [f"- Cost: {found['cost']}"] if found["cost"] else []
    if entry.options:
        lines += ["", "| option | value | meaning |", "|---|---|---|"]
        lines += [f"| `{each.name}` | {_typed(each)} | {_cell(each.meaning)} |" for each in entry.options]
    return "\n".join([*lines, ""])


def _place(entry: Entry) -> str:
    role = entry.kind.role if entry.kind.role != "block" else entry.kind.family
    return role.replace("_", " ")


def _cited(paper: dict[str, str]) -> str:
    return ", ".join(filter(None, (paper["citation"], paper["url"])))


def _capable(entry: Entry) -> str:
    return ", ".join(WORDS[name] for name, able in entry.capabilities.items() if able)


def _typed(option: Option) -> str:
    return f"{option.type}, {'required' if option.default is None else 'default ' + option.default}"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _default(value: Any) -> str | None:
    if value is MISSING:
        return None
    if isinstance(value, Block):
        return value.name
    if isinstance(value, tuple):
        return "[" + ", ".join(str(_default(item)) for item in value) + "]"
    return plain(value)


def _growth(small: int, large: int) -> str:
    """How a cost grows when the sequence gets `LONGER` times as long."""
    if large <= small * 1.01:
        return "the same for every length"
    if large <= small * LONGER * 1.2:
        return "growing as T"
    return "growing as T^2" if large >= small * LONGER * LONGER * 0.3 else "growing faster than T"


def _described(text: str, known: str) -> dict[str, str]:
    """The meanings in text such as "`name`: meaning. `other`: meaning."."""
    start = rf"(?:(?<=\A)|(?<=\n)|(?<=[.;] ))`({known})`:? "
    matches = re.finditer(rf"{start}(.+?)(?=\n\n|\Z|{start})", text, re.S)
    return {match[1]: _joined(match[2]).rstrip(".;") for match in matches}


def _sentences(text: str) -> Iterator[str]:
    start = 0
    for match in re.finditer(r"(?<=\S)\.(?: |$)", text):
        sentence = text[start : match.end()].strip()
        if sentence.endswith(_ABBREVIATIONS):
            continue
        start = match.end()
        yield sentence
    if text[start:].strip():
        yield text[start:].strip()


def _joined(text: str) -> str:
    return " ".join(text.split())


def _check(what: str, value: str | None, known: Any) -> None:
    if value is not None and value not in known:
        from searchspace.errors import SpaceError, nearest

        raise SpaceError(f"No {what} is called {value!r}.{nearest(value, known)} Known: {', '.join(known)}.")


if __name__ == "__main__":
    print(page(), end="")
