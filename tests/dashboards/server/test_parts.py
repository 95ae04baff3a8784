"""The parts of a page that a browser replaces."""

from __future__ import annotations

import json

from dashboards.server import parts

STUDY = "/studies/finished/finished"
PAGE = (
    '<body data-version="7"><p>{rest}</p><form data-live id="a" class="controls">{a}</form>'
    '<section data-live id="b">{b}</section></body>'
)


def made(rest="x", a="1", b="2"):
    return parts.live(parts.marked(PAGE.format(rest=rest, a=a, b=b)))


def shown(found):
    return {name: parts.digest_of(text) for name, text in found.parts.items()}


def test_what_differs_from_what_is_shown_is_given_whole():
    before, after = made(), made(b="3")

    (text,) = parts.changed(after.parts, shown(before)).values()

    assert text.startswith('<section data-live="') and text.endswith('id="b">3</section>')
    assert (before.version, before.frame) == (7, after.frame)
    assert parts.changed(after.parts, shown(after)) == {}


def test_the_frame_tells_what_no_part_holds():
    assert made(rest="y").frame != made().frame
    assert shown(made(rest="y")) == shown(made())


def test_a_sorted_table_is_asked_for_without_the_figures(client):
    page = parts.live(client.get(STUDY).text)
    header = ",".join(f"{name}={digest}" for name, digest in shown(page).items())

    answer = client.get(f"{STUDY}.parts?sort=-flops", {"tessera-shown": header})
    found = json.loads(answer.text)

    assert answer.header("content-type") == "application/json"
    assert (found["frame"], found["version"]) == (page.frame, page.version)
    assert {"trials-live", "footer"} <= set(found["parts"])
    assert not {"front", "history", "holes", "rungs", "summary"} & set(found["parts"])
    assert found["parts"]["trials-live"] in client.get(f"{STUDY}?sort=-flops").text
    assert set(json.loads(client.get(f"{STUDY}.parts").text)["parts"]) == set(page.parts)


def test_a_header_that_is_no_list_of_parts_asks_for_all(client):
    for header in ("", "x", "=,=,=", "front=\xff,"):
        assert "front" in json.loads(client.get(f"{STUDY}.parts", {"tessera-shown": header}).text)["parts"]


def test_a_wrong_parameter_is_told(client):
    answer = client.get(f"{STUDY}.parts?sort=nothing")

    assert answer.status == 400
    assert "sort must be one of" in json.loads(answer.text)["error"]


def test_chosen_trials_are_part_of_the_address(client):
    page = client.get(f"{STUDY}?trials=1,2&sort=trial").text

    assert page.count(" checked>") == 2
    assert "trials=1%2C2" in page, "links keep them"
    assert client.get(f"{STUDY}?trials=1&sort=rung&trials=2&sort=trial").text == page, (
        "as a form without a script sends"
    )
    assert len(json.loads(client.get(f"{STUDY}/compare.json?trials=1&trials=2").text)["trials"]) == 2
    assert client.get(f"{STUDY}?trials=1,2,3,4,5,6,7").status == 400
