"""Take the pictures of the dashboard for the docs: `python scripts/make_screenshots.py STUDY [--storage URL]`.

Writes docs/pictures/dashboard_*.png. It needs playwright and a Chromium ($CHROMIUM, or one on the PATH). With --all
FOLDER it writes every page there, at three widths in both themes, to be looked at.
"""

from __future__ import annotations

import argparse
import os
import shutil
import threading
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import uvicorn
from playwright.sync_api import Browser, sync_playwright

from dashboards.server.app import application
from dashboards.server.sources import StudyCache
from nas import location
from nas.latency.stored import OPERATIONS
from nas.store.records import SEARCH, TrialState

FOLDER = Path(__file__).resolve().parent.parent / "docs" / "pictures"
WIDTHS = (360, 800, 1600)
NAMES = "chromium-headless-shell", "chromium", "google-chrome"
ARGUMENTS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"]


def pages(cache: StudyCache) -> dict[str, str]:
    """{name: address} of every kind of page that a study and its database have."""
    study, found = cache.address, cache.study.id
    best = [each.number for each in cache.reader.best(found, limit=3, purposes=(SEARCH,), longest=True)]
    failed = cache.reader.trials(found, states=(TrialState.FAILED,), limit=1)
    measured = cache.source.reader.measured(1, without=OPERATIONS)
    chosen = ",".join(map(str, best))
    parts = {"space": "space", "lineage": "lineage", "audit": "audit", "compare": f"compare?trials={chosen}"}
    addresses = {
        "studies": "/",
        "study": study,
        "trial": f"{study}/trials/{best[0]}",
        **{name: f"{study}/{path}" for name, path in parts.items()},
        "tuning": "/tuning",
        "latency": "/tuning/latency",
        "explorer": "/explorer",
    }
    if failed:
        addresses["failed"] = f"{study}/trials/{failed[0].number}"
    if measured:
        asked = {"operation": measured[0].operation, "problem": measured[0].problem}
        addresses["problem"] = f"/tuning?{urlencode(asked)}"
    return addresses


def serve(storage: str) -> tuple[Any, str]:
    """(the application, the address of its server), in a thread of this process."""
    made = application([storage])
    server = uvicorn.Server(uvicorn.Config(made, port=0, log_level="error"))
    threading.Thread(target=server.run, daemon=True).start()
    while not server.started:
        time.sleep(0.05)
    return made, f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"


def take(browser: Browser, address: str, path: Path, width: int, theme: Any, height: int | None) -> None:
    """One picture; height: of the part of the page that is shown, None for all of it."""
    context = browser.new_context(viewport={"width": width, "height": height or 900}, color_scheme=theme)
    page = context.new_page()
    page.goto(address)
    if height is None:  # figures are drawn when they are seen
        page.set_viewport_size({"width": width, "height": min(9000, page.evaluate("document.body.scrollHeight"))})
    page.wait_for_timeout(2500)
    page.screenshot(path=path)
    context.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("study")
    parser.add_argument("--storage")
    parser.add_argument("--all", type=Path, metavar="FOLDER")
    arguments = parser.parse_args()
    chromium = os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, NAMES)))
    app, server = serve(location.storage_of(arguments.study, arguments.storage))
    (cache,) = (each for each in app.state.sources.all()[0].studies() if each.study.name == arguments.study)
    found = pages(cache)
    time.sleep(8)  # until costs can be computed
    with sync_playwright() as started:
        browser = started.chromium.launch(executable_path=chromium, args=ARGUMENTS)
        if arguments.all:
            arguments.all.mkdir(parents=True, exist_ok=True)
            for name, address in found.items():
                for width in WIDTHS:
                    for theme in ("light", "dark"):
                        path = arguments.all / f"{name}-{width}-{theme}.png"
                        take(browser, server + address, path, width, theme, None)
            return
        for name, width, height, theme in (("study", 1100, 1860, "light"), ("trial", 1100, 900, "dark")):
            take(browser, server + found[name], FOLDER / f"dashboard_{name}.png", width, theme, height)


if __name__ == "__main__":
    main()
