"""The live parts of a page: they change while the rest stays. Each has a digest of its text.

A browser sends the digests of the parts that it shows and gets the parts that differ: after a click on the page, and
after events that it missed. Texts from a database are escaped, so they cannot be mistaken for the tags of a part.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import blake2b

OPENING = re.compile(r'<(section|form|footer) data-live(?:="(\w+)")? id="([\w-]+)"')
BODY = re.compile(r'<body(?: data-frame="(\w+)")?(?: data-version="(\d+)")?>')
SHOWN = "tessera-shown"  # the header: NAME=DIGEST of each part that the browser shows, with commas


@dataclass(frozen=True)
class Live:
    """The live parts of a page.

    version: None if the page does not change by itself. frame: the digest of the page without its parts. parts: {id:
    element as HTML}.
    """

    version: int | None
    frame: str
    parts: dict[str, str]


def marked(page: str) -> str:
    """The page with the digest of each part in `data-live`, and of the rest in `data-frame` of the body element."""
    pieces, rest, end = [], [], 0
    for opening, stop in _found(page):
        inner = page[opening.end() : stop]
        pieces += [page[end : opening.start()], f'<{opening[1]} data-live="{_digest(inner)}" id="{opening[3]}"', inner]
        rest += [page[end : opening.end()]]
        end = stop
    frame = f'<body data-frame="{_digest(BODY.sub("<body>", "".join([*rest, page[end:]])))}"'
    return BODY.sub(lambda body: body[0].replace("<body", frame), "".join([*pieces, page[end:]]))


def live(page: str) -> Live:
    """The live parts of a page that `marked` returned."""
    body = BODY.search(page)
    found = {opening[3]: page[opening.start() : stop] for opening, stop in _found(page)}
    return Live(int(body[2]) if body and body[2] else None, (body and body[1]) or "", found)


def changed(parts: dict[str, str], shown: dict[str, str]) -> dict[str, str]:
    """The parts whose digests differ from `shown`: {id: digest}."""
    return {name: text for name, text in parts.items() if shown.get(name) != digest_of(text)}


def digest_of(part: str) -> str:
    """The digest in the opening tag of a part."""
    opening = OPENING.match(part)
    return (opening and opening[2]) or ""


def shown_by(header: str) -> dict[str, str]:
    """{id: digest} of the parts that a browser shows, from its header."""
    return dict(each.split("=", 1) for each in header.split(",") if "=" in each)


def _found(page: str) -> Iterator[tuple[re.Match[str], int]]:
    """Each opening tag of a part, with the end of its element. A part contains no other element with its tag name."""
    for opening in OPENING.finditer(page):
        closing = f"</{opening[1]}>"
        yield opening, page.index(closing, opening.end()) + len(closing)


def _digest(text: str) -> str:
    return blake2b(text.encode("utf-8", "backslashreplace"), digest_size=8).hexdigest()
