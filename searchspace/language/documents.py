"""Reads YAML safely: plain data, and the line of each value.

This module builds the data from the events of PyYAML's parser. So no tag runs code, nesting and aliases are limited
before they use memory, and words that YAML 1.1 converts (`no`, `off`, `1:30`, dates) stay text. Numbers follow YAML
1.2: `1e-3` and `1_000` are numbers. Keys are always text. Every error is a `SpaceError`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

import yaml

from searchspace.errors import Problem, SpaceError, nearest
from searchspace.tree import Mark

MAX_BYTES = 4 * 2**20
MAX_NODES = 30_000  # with aliases expanded; readers of spaces take about 0.1 ms for each
MAX_DEPTH = 64  # with aliases expanded; readers recurse, so this also protects them from Python's limit
MAX_DIGITS = 100
MAX_PROBLEMS = 100  # further problems are reported after these are fixed

Path_ = tuple[str | int, ...]

_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_INTEGER = re.compile(r"[-+]?[0-9]+(_[0-9]+)*")
_BASED = re.compile(r"0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(_[0-9]+)*(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_WORDS: dict[str, Any] = {"": None, "~": None, "null": None, "Null": None, "NULL": None}
_WORDS |= {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
_WORDS |= {".inf": float("inf"), "+.inf": float("inf"), "-.inf": float("-inf"), ".nan": float("nan")}


@dataclass(frozen=True)
class Tagged:
    """A value with a local tag, such as `!choice [a, b]`. tag: includes the exclamation mark."""

    tag: str
    value: Any


@dataclass(frozen=True)
class Document:
    """A document. `data` is a dict (with text keys), list, str, int, float, bool, None or `Tagged`.

    Aliases share one object.
    """

    data: Any
    source: str
    _root: _Node | None = field(default=None, compare=False, repr=False)

    def mark(self, path: Path_ = ()) -> Mark | None:
        """The place of `path`: its key in a mapping, its start in a list. If it is absent, its nearest ancestor.

        Tags are not a step of a path. None for data that is not from a file.
        """
        if self._root is None:
            return None
        node, mark = self._root, self._root.mark
        for step in path:
            if step not in node.children:
                break
            mark, node = node.children[step]
        return mark


class _Node:
    """One node. `children` maps a key or index to its place and its node."""

    __slots__ = ("children", "data", "height", "mark", "size")

    def __init__(self, data: Any, mark: Mark, children: dict[Any, tuple[Mark, _Node]] | None = None, merged: int = 0):
        self.data = data
        self.mark = mark
        self.children = children or {}
        below = [node for _, node in self.children.values()]
        self.size: int = 1 + merged + sum(node.size for node in below)
        self.height: int = 1 + max((node.height for node in below), default=0)


def parse(text: str, source: str = "<text>", tags: tuple[str, ...] = ()) -> Document:
    """Reads one YAML document. Values with one of `tags` become `Tagged`. Raises SpaceError for everything invalid."""
    if len(text) > MAX_BYTES:
        raise SpaceError([Problem(_too_large(len(text)), Mark(source, 1))])
    text = text.removeprefix("\ufeff")
    _check_characters(text, source)
    try:
        root = _Composer(text, source, tags).document()
    except yaml.MarkedYAMLError as error:
        raise SpaceError([_syntax_problem(error, text, source)]) from None
    except yaml.YAMLError as error:
        raise SpaceError([Problem(f"This is not YAML: {error}.", Mark(source, 1))]) from None
    return Document(root.data, source, root)


def load(path: str | Path, tags: tuple[str, ...] = ()) -> Document:
    """Reads the YAML file at `path`: UTF-8, at most `MAX_BYTES`. Raises SpaceError for everything invalid."""
    source = str(path)
    try:
        with Path(path).open("rb") as file:
            content = file.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise SpaceError([Problem(f"Cannot read {source!r}: {reason}.")]) from None
    if len(content) > MAX_BYTES:
        raise SpaceError([Problem(_too_large(Path(path).stat().st_size), Mark(source, 1))])
    return parse(_decode(content, source), source, tags)


def path_text(path: Path_) -> str:
    """A path as text: `body[0].repeat.of[1]`."""
    return "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path).removeprefix(".")


_SIZE = re.compile(r"([-+]?(?:[0-9][0-9_]*\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]{1,3})?)\s*(?:([kKMGT])(i?)(B?))?")


def number(value: Any) -> int | float:
    """A size with an optional unit: `5M` is 5_000_000, `2KiB` is 2048, `1.5k` is 1500. Numbers are returned unchanged.

    Units are decimal (k, M, G, T) or binary (Ki, Mi, Gi, Ti), and B may follow. Raises SpaceError for anything else.
    """
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        if value != value or value in (float("inf"), float("-inf")):
            raise SpaceError(f"Expected a finite number, found {value}.")
        return value
    match = _SIZE.fullmatch(value.strip()) if isinstance(value, str) and len(value) <= MAX_DIGITS else None
    if match is None:
        raise SpaceError(f"Expected a number such as 300_000, 5M or 2KiB, found {describe(value)}.")
    digits, prefix, binary, _ = match.groups()
    power = "kMGT".index("k" if prefix in "kK" else prefix) + 1 if prefix else 0
    exact = Decimal(digits.replace("_", "")) * (1024 if binary else 1000) ** power
    return int(exact) if exact == exact.to_integral_value() else float(exact)


def describe(value: Any) -> str:
    """A description of `value` for an error: `the text 'no'`, `a list`, `nothing`, `!choice`."""
    match value:
        case None:
            return "nothing (null)"
        case bool():
            return str(value).lower()
        case int() | float():
            return str(value) if abs(value) < 10**30 else f"{float(value):.3g}"
        case str():
            return f"the text {value if len(value) <= 60 else value[:57] + '...'!r}"
        case dict():
            return f"a mapping of {', '.join(repr(key) for key in list(value)[:4])}" if value else "an empty mapping"
        case list() | tuple():
            return "a list" if value else "an empty list"
        case Tagged():
            return value.tag
    return f"{type(value).__name__} {value!r}"


class _Composer:
    """Builds nodes from the events of one document."""

    def __init__(self, text: str, source: str, tags: tuple[str, ...]):
        self.source = source
        self.tags = tags
        self.problems: list[Problem] = []
        self.anchors: dict[str, _Node | None] = {}  # None while the anchored node is read
        self.events: Iterator[Any] = yaml.parse(text, Loader=_Loader)

    def document(self) -> _Node:
        next(self.events)  # start of the stream
        event = next(self.events)
        if not isinstance(event, yaml.DocumentStartEvent):
            self.stop("The file is empty; a description was expected.", event)
        root = self.node(next(self.events), 1)
        next(self.events)  # end of the document
        event = next(self.events)
        if isinstance(event, yaml.DocumentStartEvent):
            self.stop("A second document starts here ('---'); a file holds one.", event)
        if self.problems:
            raise SpaceError(self.problems)
        return root

    def mark(self, event: Any) -> Mark:
        return Mark(self.source, event.start_mark.line + 1, event.start_mark.column + 1)

    def problem(self, message: str, mark: Mark) -> None:
        self.problems.append(Problem(message, mark))
        if len(self.problems) == MAX_PROBLEMS:
            raise SpaceError(self.problems)

    def stop(self, message: str, event: Any) -> None:
        """Raises SpaceError with all problems so far and this one."""
        raise SpaceError([*self.problems, Problem(message, self.mark(event))])

    def node(self, event: Any, depth: int) -> _Node:
        if isinstance(event, yaml.AliasEvent):
            return self.alias(event, depth)
        if depth > MAX_DEPTH:
            self.stop(f"Nested deeper than {MAX_DEPTH} levels.", event)
        anchor = event.anchor
        if anchor is not None:
            self.anchors[anchor] = None
        node = self.content(event, depth)
        if event.tag is not None:
            node.data = self.tagged(event, node.data)
        if anchor is not None:
            self.anchors[anchor] = node
        return node

    def content(self, event: Any, depth: int) -> _Node:
        if isinstance(event, yaml.SequenceStartEvent):
            return self.sequence(event, depth)
        if isinstance(event, yaml.MappingStartEvent):
            return self.mapping(event, depth)
        plain = not event.style and event.tag != "!"
        return _Node(self.scalar(event) if plain else event.value, self.mark(event))

    def alias(self, event: Any, depth: int) -> _Node:
        if event.anchor not in self.anchors:
            known = [name for name, node in self.anchors.items() if node]
            self.stop(f"*{event.anchor} has no anchor &{event.anchor} above it.{nearest(event.anchor, known)}", event)
        node = self.anchors[event.anchor]
        if node is None:
            self.stop(f"*{event.anchor} is inside its own anchor, so it would never end.", event)
        assert node is not None
        if depth + node.height - 1 > MAX_DEPTH:
            self.stop(f"Nested deeper than {MAX_DEPTH} levels, with *{event.anchor} expanded.", event)
        return node

    def tagged(self, event: Any, data: Any) -> Any:
        if event.tag in self.tags:
            return Tagged(event.tag, data)
        allowed = f"Allowed: {', '.join(self.tags)}." if self.tags else "No tags are allowed here."
        tag = event.tag.replace("tag:yaml.org,2002:", "!!")
        self.problem(f"Unknown tag {tag!r}.{nearest(tag, self.tags)} {allowed}", self.mark(event))
        return data

    def scalar(self, event: Any) -> Any:
        text = event.value
        if text in _WORDS:
            return _WORDS[text]
        integer, based = _INTEGER.fullmatch(text), _BASED.fullmatch(text)
        if not (integer or based or _FLOAT.fullmatch(text)):
            return text
        if len(text) > MAX_DIGITS:
            self.problem(f"A number of more than {MAX_DIGITS} digits.", self.mark(event))
            return 0
        # As in YAML 1.2, 010 is ten. YAML 1.1 would read it as octal.
        return int(text) if integer else int(text, 0) if based else float(text)

    def sequence(self, start: Any, depth: int) -> _Node:
        children: dict[Any, tuple[Mark, _Node]] = {}
        size = 0
        while not isinstance(event := next(self.events), yaml.SequenceEndEvent):
            node = self.node(event, depth + 1)
            children[len(children)] = (self.mark(event), node)
            size = self.counted(size + node.size, event)
        return _Node([node.data for _, node in children.values()], self.mark(start), children)

    def mapping(self, start: Any, depth: int) -> _Node:
        children: dict[Any, tuple[Mark, _Node]] = {}
        merges: list[_Node] = []
        size = 0
        while not isinstance(event := next(self.events), yaml.MappingEndEvent):
            key, mark = self.key(event), self.mark(event)
            node = self.node(next(self.events), depth + 1)
            # A merge counts its whole source, even if every key is overridden, so that merges cannot multiply the work.
            size = self.counted(size + node.size, event)
            if key == "<<" and not event.style:
                merges += self.merged(node, event)
            elif key in children:
                first = children[key][0].line
                self.problem(f"{key!r} is written twice, first in line {first}.", mark)
            else:
                children[key] = (mark, node)
        for node in merges:
            for key, child in node.children.items():
                children.setdefault(key, child)
        extra = sum(node.size for node in merges)
        return _Node({key: node.data for key, (_, node) in children.items()}, self.mark(start), children, extra)

    def counted(self, size: int, event: Any) -> int:
        """`size`, the number of values that a list or mapping has so far. Raises SpaceError if that is too many."""
        if size >= MAX_NODES:
            self.stop(f"More than {MAX_NODES} values, with aliases expanded.", event)
        return size

    def key(self, event: Any) -> str:
        if not isinstance(event, yaml.ScalarEvent):
            self.stop("A key must be a plain name.", event)
        if event.tag is not None or event.anchor is not None or not event.value:
            found = "is empty" if not event.value else "carries a tag or an anchor"
            self.problem(f"A key must be a plain name, but this one {found}.", self.mark(event))
        return event.value

    def merged(self, node: _Node, event: Any) -> list[_Node]:
        sources = [child for _, child in node.children.values()] if isinstance(node.data, list) else [node]
        if all(isinstance(source.data, dict) for source in sources):
            return sources
        self.problem(f"'<<' merges a mapping or a list of mappings, found {describe(node.data)}.", self.mark(event))
        return []


def _too_large(size: int) -> str:
    return f"{size:,} bytes; a description has at most {MAX_BYTES:,}. Is this the right file?"


def _decode(content: bytes, source: str) -> str:
    if content[:2] in (b"\xff\xfe", b"\xfe\xff"):
        raise SpaceError([Problem("The file is UTF-16; save it as UTF-8.", Mark(source, 1))])
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        mark = Mark(source, content.count(b"\n", 0, error.start) + 1)
        byte = content[error.start]
        raise SpaceError([Problem(f"The byte 0x{byte:02x} is not UTF-8; save the file as UTF-8.", mark)]) from None


def _check_characters(text: str, source: str) -> None:
    bad = yaml.reader.Reader.NON_PRINTABLE.search(text)
    if bad:
        mark = Mark(source, text.count("\n", 0, bad.start()) + 1, bad.start() - text.rfind("\n", 0, bad.start()))
        raise SpaceError([Problem(f"The character U+{ord(bad.group()):04X} is not allowed in YAML.", mark)])


def _syntax_problem(error: yaml.MarkedYAMLError, text: str, source: str) -> Problem:
    place = error.problem_mark or error.context_mark
    if place is None:
        return Problem(f"This is not YAML: {error.problem}.", Mark(source, 1))
    lines = text.splitlines()
    line = lines[place.line] if place.line < len(lines) else ""
    if "\t" in line[: len(line) - len(line.lstrip())]:
        message = "A tab cannot indent YAML; use spaces."
    else:
        context = f" {error.context}" if error.context else ""
        message = f"This is not YAML: {error.problem}{context}."
    return Problem(message, Mark(source, place.line + 1, place.column + 1))
