"""A real browser on a real server: every page, themes, widths, keyboard, print, live updates, and axe."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

from nas.engine.leases import _started, owner_name
from nas.store import open_store
from tests.dashboards.conftest import PROBLEM, add_plain

playwright = pytest.importorskip("playwright.sync_api", reason="the browser is driven by: pip install playwright")
# the first draws the same pages without windows, for a sixth less CPU
NAMES = "chromium-headless-shell", "chromium", "chromium-browser", "google-chrome", "chrome"
CHROMIUM = os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)
if CHROMIUM is None:
    pytest.skip("no Chromium: apt install chromium, or name one in $CHROMIUM", allow_module_level=True)

FINISHED = "/studies/finished/finished"
PAGES = {
    "studies": "/",
    "study": FINISHED,
    "trial": f"{FINISHED}/trials/1",
    "compare": f"{FINISHED}/compare?trials=0,1,2",
    "space": "/studies/grown/grown/space",
    "lineage": f"{FINISHED}/lineage",
    "audit": f"{FINISHED}/audit",
    "tuning": "/tuning",
    "problem": f"/tuning?{urlencode({'database': 'new', 'operation': 'softmax', 'problem': PROBLEM})}",
    "latencies": "/tuning/latency",
    "explorer": "/explorer",
    "failing": "/studies/failing/failing",
    "hostile": "/studies/hostile/~1",
    "hostile trial": "/studies/hostile/~1/trials/2",
    "new": "/studies/new/new",
    "latency": "/studies/latency/latency/trials/0",
}
ARGUMENTS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-extensions"]
WAIT = 45_000  # milliseconds, for a machine that is busy
WIDE, PHONE = {"width": 1000, "height": 900}, {"width": 360, "height": 800}


@contextmanager
def serving(*places: str, **options: Any) -> Iterator[str]:
    """The address of a server in a thread of this process."""
    import uvicorn

    from dashboards.server.app import application

    made = application(list(places), costs=False, **options)
    served = uvicorn.Server(uvicorn.Config(made, port=0, log_level="error", timeout_graceful_shutdown=1))
    thread = threading.Thread(target=served.run, daemon=True)
    thread.start()
    while not served.started:
        time.sleep(0.02)
    yield f"http://127.0.0.1:{served.servers[0].sockets[0].getsockname()[1]}"
    served.should_exit = True
    thread.join(10)


@pytest.fixture(scope="module")
def server(databases) -> Iterator[str]:
    with serving(*databases.values()) as address:
        yield address


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as started:
        made = started.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        yield made
        made.close()


@pytest.fixture
def page(browser, server) -> Iterator[Any]:
    """A page that fails the test for an error of a script, a warning of the policy, or a request to another machine."""
    context = browser.new_context(viewport=WIDE, base_url=server)
    made = context.new_page()
    made.set_default_timeout(8 * WAIT)
    problems: list[str] = []
    made.on("console", lambda message: problems.append(message.text) if message.type in ("error", "warning") else None)
    made.on("pageerror", lambda error: problems.append(str(error)))
    ours = (server, "data:", "blob:")
    made.on("request", lambda request: None if request.url.startswith(ours) else problems.append(request.url))
    made.problems = problems
    yield made
    context.close()
    assert problems == []


def test_figures_are_drawn_in_the_colours_of_the_theme(page):
    page.emulate_media(color_scheme="dark")
    page.goto(FINISHED)
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(20, 23, 28)"
    mark = page.locator("#plot-front .mark.c0").first
    assert mark.evaluate("each => getComputedStyle(each).fill") == "rgb(74, 168, 232)"


def test_the_editor_marks_a_mistake_at_its_line_and_fills_the_form(page):
    page.goto(PAGES["explorer"])
    page.locator(".cm-content").click()
    page.keyboard.press("Control+End")
    page.keyboard.type("\nbody: [")
    page.locator(".cm-lint-marker-error").wait_for(timeout=WAIT)

    assert "expected" in page.locator("#problems").inner_text()
    assert page.locator("textarea").input_value().endswith("body: [")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.closest('.cm-editor')") is None, "Tab leaves the editor"


TOO_WIDE = "document.documentElement.scrollWidth - document.documentElement.clientWidth"


@pytest.mark.skipif(find_spec("axe_playwright_python") is None, reason="pip install axe-playwright-python")
def test_every_page_fits_a_phone_and_axe_finds_nothing_serious(page):
    """In one test, because each page is loaded once for both."""
    from axe_playwright_python.sync_playwright import Axe

    found, wide = [], {}

    def check(name: str, **options: Any) -> None:
        page.add_style_tag(content=".table, .picture { background: none !important }")  # axe knows no gradients
        for each in Axe().run(page, options={"resultTypes": ["violations"], **options}).response["violations"]:
            if each["impact"] in ("serious", "critical"):
                found.append((name, each["id"], each["nodes"][0]["html"][:200]))

    for name, path in PAGES.items():
        page.set_viewport_size(PHONE)
        page.goto(path)
        wide[name] = page.evaluate(TOO_WIDE)
        assert page.locator("h1").count() == 1, name
        page.set_viewport_size(WIDE)
        if name == "explorer":
            page.locator(".cm-editor").wait_for(timeout=WAIT)
        check(name)
        if name in ("study", "trial", "audit", "compare"):
            page.emulate_media(color_scheme="dark")
            check(f"{name} in the dark", runOnly=["color-contrast"])
            page.emulate_media(color_scheme="light")
        if name == "compare":
            page.set_viewport_size(PHONE)
            check("on a phone", runOnly=["scrollable-region-focusable"])
    assert found == []
    assert {name: pixels for name, pixels in wide.items() if pixels > 0} == {}


def test_pages_work_without_scripts(browser, server):
    context = browser.new_context(java_script_enabled=False, base_url=server)
    page = context.new_page()
    page.goto(FINISHED)

    assert page.locator("svg.figure").count() >= 4
    page.locator("select[name=y]").select_option("flops")
    page.locator("#front-section form button").click()
    assert "y=flops" in page.url
    for number in (1, 2):
        page.locator(f"input[name=trials][value='{number}']").check()
    page.locator("th button", has_text="Parameters").click()
    assert "sort=parameters" in page.url
    page.goto(f"{page.url.replace('#', '&per=5&page=2#')}")
    page.locator("#trials-previous").click()
    page.locator("input[type=checkbox][name=trials]:not(:checked)").first.check()
    page.locator("#compare button").click()
    assert page.locator("main p a").count() == 3, "those of other pages too"
    page.goto(FINISHED)
    page.locator("td a").first.click()
    assert page.locator("h1").inner_text().startswith("Trial")
    context.close()


def test_a_table_is_sorted_turned_and_filtered_without_a_reload(page):
    page.goto(FINISHED)
    page.evaluate("window.stayed = document.querySelector('#plot-front svg')")
    page.locator("#trials-rows th button", has_text="FLOPs").click()
    page.locator("#trials-rows th[aria-sort=ascending]", has_text="FLOPs").wait_for(timeout=WAIT)
    focused = page.evaluate("document.activeElement.textContent")
    page.keyboard.press("Enter")  # the same column, the other way
    page.locator("#trials-rows th[aria-sort=descending]", has_text="FLOPs").wait_for(timeout=WAIT)
    told = page.locator("#said").inner_text()
    page.locator("#trials-form select[name=state]").select_option("complete")
    page.locator("#trials-form button").click()
    page.locator("#trials-form select[name=state] option[selected]", has_text="complete").wait_for(
        state="attached", timeout=WAIT
    )
    address = page.url
    kept = page.evaluate("window.stayed === document.querySelector('#plot-front svg')")
    whole = page.content()
    page.go_back()
    page.locator("#trials-form select[name=state] option[selected]", has_text="any").wait_for(
        state="attached", timeout=WAIT
    )
    page.go_back()
    page.locator("#trials-rows th[aria-sort=ascending]", has_text="FLOPs").wait_for(timeout=WAIT)

    assert "sort=-flops" in address and "state=complete" in address
    assert (focused, kept) == ("FLOPs of one sequence", True)
    assert told == "Trials, sorted by FLOPs of one sequence, descending", "what did not change is not told"
    assert page.evaluate("document.getElementById('main').ariaBusy") is None
    page.goto(address)
    assert page.locator("#trials-live").inner_html() in whole, "a view that is sent to somebody is the same"


def middle(mark) -> tuple[float, float]:
    box = mark.bounding_box()
    return box["x"] + box["width"] / 2, box["y"] + box["height"] / 2


def dragged(page, start: tuple[float, float], end: tuple[float, float]) -> None:
    """Drag over the front, between places that are shares of its width and height."""
    page.locator("#plot-front svg").first.scroll_into_view_if_needed()
    box = page.locator("#plot-front svg").first.bounding_box()
    (x, y), (to_x, to_y) = ((box["x"] + a * box["width"], box["y"] + b * box["height"]) for a, b in (start, end))
    page.mouse.move(x, y)
    page.mouse.down()
    page.mouse.move(to_x, to_y, steps=4)
    page.mouse.up()


def test_a_point_has_a_label_and_opens_its_trial(page):
    page.goto(FINISHED)
    mark = page.locator("#plot-front a .mark").last
    mark.scroll_into_view_if_needed()
    page.mouse.move(*middle(mark))
    label = page.locator(".label").inner_text()
    page.mouse.click(*middle(mark))
    page.wait_for_url("**/trials/*", timeout=WAIT)

    assert re.fullmatch(r"Trial \d+: \S+, \S+", label)
    assert page.locator("h1").inner_text().startswith(label.partition(":")[0])


def test_a_drag_zooms_and_the_zoom_is_part_of_the_address(page):
    page.goto(FINISHED)
    whole = page.locator("#plot-front .mark").count()
    dragged(page, (0.3, 0.3), (0.8, 0.7))
    page.wait_for_url("**view_front=**", timeout=WAIT)
    page.locator("#front a", has_text="Show all").wait_for(timeout=WAIT)
    ends = page.evaluate("new URLSearchParams(location.search).get('view_front').split(',').map(Number)")
    drawn = page.locator("#plot-front svg").first.get_attribute("data-x").split()
    assert [float(each) for each in drawn[:2]] == pytest.approx(ends[:2], rel=1e-3)
    assert 0 < page.locator("#plot-front .mark").count() < whole
    page.locator("#plot-front svg").first.dblclick()
    page.locator("#front a", has_text="Show all").wait_for(state="detached", timeout=WAIT)
    assert page.locator("#plot-front .mark").count() == whole


def test_shift_and_a_drag_compare_the_trials_in_a_box(page):
    page.goto(FINISHED)
    page.keyboard.down("Shift")
    dragged(page, (0.15, 0.12), (0.95, 0.8))
    page.keyboard.up("Shift")

    page.wait_for_url("**/compare?trials=**", timeout=WAIT)
    assert page.locator("h1").inner_text().count(",") == 5, "at most six"


def test_the_keyboard_reaches_everything(page):
    page.goto(FINISHED)
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the content"
    seen = set()
    for _ in range(40):
        page.keyboard.press("Tab")
        seen.add(page.evaluate("document.activeElement.tagName"))
        outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
        assert outline != "none", page.evaluate("document.activeElement.outerHTML.slice(0, 200)")
    assert {"A", "SELECT"} <= seen


def test_paper_leaves_out_what_cannot_be_clicked(page):
    page.goto(FINISHED)
    page.emulate_media(media="print")

    assert not page.locator("header.top").is_visible()
    assert not page.locator("form.controls").first.is_visible()
    assert page.locator("h1").is_visible()


@pytest.fixture
def worker() -> Iterator[tuple[subprocess.Popen, str]]:
    """A process that does nothing, and its name as an owner of leases."""
    process = subprocess.Popen(["sleep", "600"])
    host, boot, _, _, own = owner_name().split("/")
    yield process, "/".join((host, boot, str(process.pid), _started(process.pid), own))
    process.kill()
    process.wait()


def test_pages_follow_a_study_without_a_reload(page, databases, worker):
    process, owner = worker
    page.goto("/studies/followed/followed")
    listed = page.context.new_page()
    listed.goto("/")
    for each in (page, listed):
        each.locator("#live", has_text="live").wait_for(timeout=WAIT)
        each.evaluate("window.stayed = true")
    row = listed.locator("tr", has=listed.locator("a", has_text=re.compile("^followed$")))
    with open_store(databases["followed"]) as store:
        study = store.study("followed")
        number = store.next_number(study.id)
        add_plain(store, study.id, number)
        store.lease(study.id, owner)
    page.locator(f"#trials-live a[href$='/trials/{number}']").focus(timeout=WAIT)
    page.locator("#units span.state", has_text="running").wait_for(timeout=WAIT)
    row.locator("span.state", has_text="searching").wait_for(timeout=WAIT)
    process.kill()
    process.wait()
    page.locator("h1 .state", has_text="interrupted").wait_for(timeout=WAIT)
    row.locator("span.state", has_text="interrupted").wait_for(timeout=WAIT)

    assert page.evaluate("document.activeElement.getAttribute('href')").endswith(f"/trials/{number}")
    assert page.evaluate("window.stayed") is listed.evaluate("window.stayed") is True
    listed.close()


def test_the_report_opens_from_the_disk_without_a_network(browser, databases, tmp_path: Path):
    from dashboards.sent.write import write

    (path,) = write("finished", databases["finished"], tmp_path / "report.html", "html")
    context = browser.new_context(offline=True)
    page = context.new_page()
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.on("console", lambda message: asked.append(message.text))
    page.goto(path.as_uri())

    assert asked == [path.as_uri()]
    assert page.locator("svg.figure").count() >= 4
    page.emulate_media(media="print")
    cut = "each => each.filter(one => one.scrollWidth > one.clientWidth).map(one => one.outerHTML.slice(0, 99))"
    for kind, width in ((".picture", 300), (".picture, .plot, .table", 703)):  # A4 without its margins has 703 pixels
        page.set_viewport_size({"width": width, "height": 900})
        assert page.locator(kind).evaluate_all(cut) == [], "paper cannot be scrolled"
    context.close()


def test_the_form_for_the_token_opens_the_pages_below_the_prefix_of_a_proxy(browser, databases):
    token = "a-long-token-of-ours"
    page = browser.new_page()
    with serving(databases["new"], host="0.0.0.0", token=token, root="/tessera") as address:
        page.goto(f"{address}/tessera/tuning")
        page.fill("input", token)
        page.click("button")
        page.wait_for_selector("#studies-rows", timeout=WAIT)
        page.locator("#live", has_text="live").wait_for(timeout=WAIT)  # scripts are found there too
        assert page.url == f"{address}/tessera/"
    page.close()
