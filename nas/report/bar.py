"""The live bar of a search on a terminal: trials of the budget, and below it a bar for each running unit."""

from __future__ import annotations

from collections.abc import Mapping

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn
from rich.table import Column

from nas.report.console import Head, unit_text
from nas.work import Progress as UnitReport

WIDTH = 12  # columns of a bar


class Bar:
    """Draws at the bottom of the terminal until it is closed; then it disappears."""

    def __init__(self, console: Console):
        name = TextColumn("{task.description}", markup=False, table_column=Column(no_wrap=True))
        rest = Column(no_wrap=True, overflow="ellipsis", ratio=1)  # the others keep their width
        text = TextColumn("{task.fields[text]}", markup=False, table_column=rest)
        bar = BarColumn(WIDTH)
        self._live = Progress(name, bar, text, console=console, transient=True, refresh_per_second=4, expand=True)
        self._head = self._live.add_task("starting", total=None, text="")
        self._units: dict[str, TaskID] = {}
        self._live.start()

    def update(self, head: Head, running: Mapping[str, UnitReport]) -> None:
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
