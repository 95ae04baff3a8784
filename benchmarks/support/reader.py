"""Response times of the dashboard in a real Chromium: how long until the page shows a result, and how long it is busy.

The time runs from the click until the frame after the last change of the document. It is measured in the page itself,
also across the load of another page. Busy is the time of the tasks in the page, and CPU the time of its main thread, as
Chromium counts them. Only the CPU time does not depend on the load of the machine.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from functools import partial
from statistics import median
from typing import Any

QUIET = 700  # milliseconds without a change after which a page is complete
TURNS = 7
SCREEN = {"width": 1280, "height": 900}
PAINTED = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime"
# Stores the time of the last action of the reader, and of the frame after the last change since then.
CLOCK = """
const now = () => performance.timeOrigin + performance.now();
for (const kind of ["click", "mouseup", "change"])
  document.addEventListener(kind, event => event.isTrusted && sessionStorage.setItem("acted", now()), true);
const note = () => requestAnimationFrame(() => requestAnimationFrame(() => {
  const last = Number(sessionStorage.getItem("last"));
  sessionStorage.setItem("last", Math.max(last, now()));
}));
new MutationObserver(changes => {
  if (changes.some(each => !(each.target.closest ?? (() => null)).call(each.target, "#live"))) note();
}).observe(document, { subtree: true, childList: true, attributes: true, characterData: true });
"""


def chromium() -> str | None:
    """The path of Chromium; None if it is not installed."""
    names = ("chromium", "chromium-browser", "google-chrome", "chrome")
    return os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, names)), None)


def read(address: str) -> Iterator[dict[str, Any]]:
    """{action, ms, slowest ms, busy ms, CPU ms} of each action on the page of a study: medians of `TURNS` turns."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as started:
        browser = started.chromium.launch(executable_path=chromium(), args=["--headless", "--no-sandbox"])
        yield _row("first paint", [_painted(browser, address) for _ in range(TURNS)])
        page = browser.new_page(viewport=SCREEN)
        page.add_init_script(CLOCK)
        page.goto(address)
        page.locator("#plot-front[data-ready]").wait_for(timeout=60_000)
        for name, act in ACTIONS.items():
            yield _row(name, [_timed(page, partial(act, page, turn)) for turn in range(TURNS)])
        browser.close()


def _row(name: str, found: list[tuple[float, float, float]]) -> dict[str, Any]:
    elapsed, busy, spent = zip(*found)
    row = {"action": name, "ms": round(median(elapsed)), "slowest ms": round(max(elapsed))}
    return row | {"busy ms": round(median(busy)), "CPU ms": round(median(spent))}


def _painted(browser: Any, address: str) -> tuple[float, float, float]:
    """As `_timed`, from the request until a new browser without a cache paints the first content of the page."""
    context = browser.new_context(viewport=SCREEN)
    page = context.new_page()
    session = context.new_cdp_session(page)
    session.send("Performance.enable")
    page.goto(address)
    while not (painted := page.evaluate(PAINTED)):
        page.wait_for_timeout(20)
    busy, spent = (1e3 * each for each in _spent(session))
    context.close()
    return painted, busy, spent


def _timed(page: Any, act: Callable[[], None]) -> tuple[float, float, float]:
    """Milliseconds of an action: (until the page shows the result, of the tasks of the page, of its CPU time)."""
    _quiet(page)
    session = page.context.new_cdp_session(page)
    session.send("Performance.enable")
    before = _spent(session)
    page.evaluate("sessionStorage.setItem('last', 0)")
    act()
    _quiet(page)
    elapsed = page.evaluate("Number(sessionStorage.getItem('last')) - Number(sessionStorage.getItem('acted'))")
    after = _spent(session)
    session.detach()
    busy, spent = (1e3 * (now - then if now > then else now) for then, now in zip(before, after))
    return elapsed, busy, spent


def _spent(session: Any) -> tuple[float, float]:
    """Seconds (of tasks, of CPU time) since the page was loaded."""
    found = {each["name"]: each["value"] for each in session.send("Performance.getMetrics")["metrics"]}
    return found["TaskDuration"], found["ThreadTime"]


def _quiet(page: Any) -> None:
    last = None
    while (now := page.evaluate("sessionStorage.getItem('last')")) != last:
        last = now
        page.wait_for_timeout(QUIET)


def _zoom(page: Any, turn: int) -> None:
    drag = page.locator("#plot-front .nsewdrag").first
    drag.scroll_into_view_if_needed()
    if turn % 2:
        page.locator("#plot-front .modebar-btn[data-val=reset]").click(force=True)
        return
    box = drag.bounding_box()
    page.mouse.move(box["x"] + 40, box["y"] + 40)
    page.mouse.down()
    page.mouse.move(box["x"] + 0.7 * box["width"], box["y"] + 0.7 * box["height"], steps=3)
    page.mouse.up()


ACTIONS: dict[str, Callable[[Any, int], None]] = {
    "sort": lambda page, turn: page.locator("#trials-rows th button").nth(1 + turn % 5).click(),
    "page": lambda page, _turn: page.locator("#trials-next").click(),
    "filter": lambda page, turn: _filter(page, ("complete", "stopped", "failed", "any")[turn % 4]),
    "colours of the figure": lambda page, turn: _turn(page, ("ArrowDown", "ArrowUp")[turn % 2]),
    "zoom": _zoom,
}


def _turn(page: Any, key: str) -> None:
    page.locator("select[name=shade]").focus()
    page.keyboard.press(key)


def _filter(page: Any, state: str) -> None:
    form = page.locator("form", has=page.locator("select[name=state]"))
    form.locator("select[name=state]").select_option(state)
    page.wait_for_timeout(100)
    form.locator("button").click()
