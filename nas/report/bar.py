"""The live bar of a search on a terminal: trials of the budget, and below it a bar for each running unit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from nas.work import Progress

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import TaskID

WIDTH = 12  # columns of a bar


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


class Bar:
    """Draws at the bottom of the terminal until it is closed; then it disappears."""

    def __init__(self, console: Console):
        from rich import progress  # a tenth of a second
        from rich.table import Column

        name = progress.TextColumn("{task.description}", markup=False, table_column=Column(no_wrap=True))
        rest = Column(no_wrap=True, overflow="ellipsis", ratio=1)  # the others keep their width
        text = progress.TextColumn("{task.fields[text]}", markup=False, table_column=rest)
        bar = progress.BarColumn(WIDTH)
        self._live = progress.Progress(
            name, bar, text, console=console, transient=True, refresh_per_second=4, expand=True
        )
        self._head = self._live.add_task("starting", total=None, text="")
        self._units: dict[str, TaskID] = {}
        self._live.start()

    def update(self, head: Head, running: Mapping[str, Progress]) -> None:
        """Show the line about the search and the progress of the running units by name."""
        total = head.total or None
        self._live.update(self._head, description=head.count, completed=head.done, total=total, text=head.text)
        for name in set(self._units) - set(running):
            self._live.remove_task(self._units.pop(name))
        for name, each in running.items():
            if name not in self._units:
                self._units[name] = self._live.add_task(f"  {name}", total=each.steps, text="")
            self._live.update(self._units[name], completed=each.step, total=each.steps, text=unit_text(each))

    def refresh(self) -> None:
        """Draw now."""
        self._live.refresh()

    def close(self) -> None:
        """Remove the bar."""
        self._live.stop()
