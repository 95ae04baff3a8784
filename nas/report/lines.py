"""The lines about a running search: one about the whole search, one about each unit."""

from __future__ import annotations

from dataclasses import dataclass

from nas.work import Progress


@dataclass(frozen=True)
class Head:
    """The line about a whole search: `done` of `total` trials or finals (0: unknown), and further `parts`."""

    what: str
    done: int
    total: int
    parts: list[str]

    @property
    def text(self) -> str:
        """The line without the count."""
        return " | ".join(part for part in self.parts if part)

    @property
    def count(self) -> str:
        """The count: 7/12 trials."""
        return f"{self.done}/{self.total} {self.what}" if self.total else f"{self.done} {self.what}"

    @property
    def line(self) -> str:
        """The whole line."""
        return f"{self.count}: {self.text}" if self.text else self.count


def unit_text(each: Progress) -> str:
    """The line about a unit: step 3/10, loss 2.413, 51,000 tokens/s."""
    return f"step {each.step}/{each.steps}, loss {each.loss:.3f}, {each.tokens_per_second:,.0f} tokens/s"
