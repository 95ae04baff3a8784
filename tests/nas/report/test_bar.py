"""The live bar: at any width of the terminal the count and the names are whole."""

import io

import pytest
from rich.console import Console

from nas.report.bar import Bar, Head
from nas.work import Progress

PARTS = ["11 done, 1 running, 7 paused, 0 failed", "best bits_per_byte 4.408 (rung 2)", "ETA 00:03:11"]


@pytest.mark.parametrize("width", [50, 80, 120])
def test_the_text_alone_is_cut(width):
    console = Console(file=io.StringIO(), width=width, force_terminal=True)
    bar = Bar(console)
    bar.update(Head("trials", 19, 400, PARTS), {"trial 19": Progress(3, 40, 1.5, 100.0)})
    bar.refresh()
    bar.close()

    drawn = console.file.getvalue()
    assert "19/400 trials" in drawn and "  trial 19 " in drawn and "━━━" in drawn
    assert ("ETA 00:03:11" in drawn) == (width == 120)
