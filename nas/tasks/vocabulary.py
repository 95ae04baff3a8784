"""Vocabularies: convert text to the numbers that a model reads, and back.

A task with symbols in its batches has one (`task.vocabulary`). An export stores it, so that the exported model can read
and write text. Special symbols, such as the mask, come after the others and are written <name>.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

from nas.errors import UsageError


class Vocabulary(ABC):
    """The symbols 0 to `size` - 1 of a task. `special` are the names of the last ones."""

    kind: ClassVar[str]
    _kinds: ClassVar[dict[str, type[Vocabulary]]] = {}

    def __init_subclass__(cls) -> None:
        Vocabulary._kinds[cls.kind] = cls

    def __init__(self, special: Iterable[str] = ()) -> None:
        self.special = tuple(special)

    @property
    @abstractmethod
    def plain(self) -> int:
        """The number of symbols that are not special."""

    @property
    def size(self) -> int:
        """The number of all symbols."""
        return self.plain + len(self.special)

    def special_symbol(self, name: str) -> int:
        """The number of the special symbol `name`. Raises ValueError if there is none."""
        return self.plain + self.special.index(name)

    @abstractmethod
    def encode(self, text: str) -> list[int]:
        """`text` as symbols. Raises ValueError if a part of it is not in the vocabulary."""

    def decode(self, symbols: Iterable[int]) -> str:
        """`symbols` as text. Raises ValueError for a number that is not below `size`."""
        listed = [int(symbol) for symbol in symbols]
        for symbol in listed:
            if not 0 <= symbol < self.size:
                raise ValueError(f"symbols must be from 0 to {self.size - 1}, but got {symbol}.")
        return self._text(listed)

    @abstractmethod
    def _text(self, symbols: list[int]) -> str: ...

    def _name(self, symbol: int) -> str:
        return f"<{self.special[symbol - self.plain]}>"

    def to_dict(self) -> dict[str, Any]:
        """Plain data that `from_dict` reads."""
        found: dict[str, Any] = {"kind": self.kind, "size": self.size, **self._content()}
        return found | ({"special": list(self.special)} if self.special else {})

    def _content(self) -> dict[str, Any]:
        return {}

    @staticmethod
    def from_dict(data: Mapping[str, Any]) -> Vocabulary:
        """The vocabulary that `to_dict` wrote. Raises UsageError for an unknown kind."""
        options = {name: value for name, value in data.items() if name not in ("kind", "size")}
        kind = data.get("kind")
        if kind not in Vocabulary._kinds:
            known = ", ".join(sorted(Vocabulary._kinds))
            raise UsageError(f"No vocabulary is of the kind {kind!r}. Known: {known}.")
        return Vocabulary._kinds[kind](**options)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Vocabulary) and self.to_dict() == other.to_dict()

    def __hash__(self) -> int:
        return hash((self.kind, self.size))

    def __repr__(self) -> str:
        return f"{type(self).__name__}(size={self.size})"


class Bytes(Vocabulary):
    """The 256 bytes of UTF-8 text."""

    kind = "bytes"

    @property
    def plain(self) -> int:
        return 256

    def encode(self, text: str) -> list[int]:
        return list(text.encode())

    def _text(self, symbols: list[int]) -> str:
        """Bytes that are not UTF-8 become the replacement character."""
        parts = (bytes([each]) if each < 256 else self._name(each).encode() for each in symbols)
        return b"".join(parts).decode(errors="replace")


class Characters(Vocabulary):
    """The characters of a text, in the order of their code points."""

    kind = "characters"

    def __init__(self, characters: str, special: Iterable[str] = ()) -> None:
        super().__init__(special)
        self.characters = characters
        self._numbers = {character: number for number, character in enumerate(characters)}

    @property
    def plain(self) -> int:
        return len(self.characters)

    def encode(self, text: str) -> list[int]:
        """The numbers of the characters. Raises ValueError for characters that the vocabulary lacks."""
        unknown = sorted(set(text) - self._numbers.keys())
        if unknown:
            raise ValueError(f"The text has characters that the vocabulary lacks: {''.join(unknown[:20])!r}.")
        return [self._numbers[character] for character in text]

    def _text(self, symbols: list[int]) -> str:
        return "".join(self.characters[each] if each < self.plain else self._name(each) for each in symbols)

    def _content(self) -> dict[str, Any]:
        return {"characters": self.characters}


class Words(Vocabulary):
    """Named symbols, separated by spaces in text: the digits and marks of synthetic tasks."""

    kind = "words"

    def __init__(self, words: Iterable[str], special: Iterable[str] = ()) -> None:
        super().__init__(special)
        self.words = tuple(words)
        names = [*self.words, *(f"<{name}>" for name in self.special)]
        self._numbers = {name: number for number, name in enumerate(names)}

    @property
    def plain(self) -> int:
        return len(self.words)

    def encode(self, text: str) -> list[int]:
        """The numbers of the words. Raises ValueError for words that the vocabulary lacks."""
        unknown = [word for word in text.split() if word not in self._numbers]
        if unknown:
            raise ValueError(f"The text has words that the vocabulary lacks: {', '.join(map(repr, unknown[:20]))}.")
        return [self._numbers[word] for word in text.split()]

    def _text(self, symbols: list[int]) -> str:
        return " ".join(self.words[each] if each < self.plain else self._name(each) for each in symbols)

    def _content(self) -> dict[str, Any]:
        return {"words": list(self.words)}


WORD = re.compile(r"\w+|[^\w\s]")  # a word or a mark
UNKNOWN = "unknown"


class Sentences(Words):
    """The words and the marks of sentences. What it lacks is the special symbol `unknown`."""

    kind = "sentences"

    def encode(self, text: str) -> list[int]:
        """The numbers of the words and the marks, which need no spaces between them."""
        unknown = self.special_symbol(UNKNOWN)
        return [self._numbers.get(word, unknown) for word in WORD.findall(text)]
