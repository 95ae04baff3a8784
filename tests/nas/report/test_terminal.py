"""Text from a database cannot steer a terminal."""

import json
import unicodedata

from hypothesis import given
from hypothesis import strategies as st

from nas.report.tables import rendered, visible, visible_json

ANY = st.text(st.characters(), max_size=20)
HOSTILE = "a\x1b[2J\x9b31m\u202etxt\x07\r"


def steers(character):
    return character not in "\t\n" and unicodedata.category(character) in ("Cc", "Cs", "Zl", "Zp")


@given(ANY)
def test_nothing_steers_and_all_else_stays(text):
    shown = visible(text)
    assert not any(map(steers, shown))
    shown.encode()
    if not any(map(steers, text)) and not {*text} & {*"\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\ufeff"}:
        assert shown == text or any("\u2066" <= each <= "\u2069" for each in text)


@given(ANY)
def test_json_stays_the_same_json(text):
    document = json.dumps({"name": text}, ensure_ascii=False)
    assert json.loads(visible_json(document)) == {"name": text}
    assert not any(map(steers, visible_json(document)))


def test_a_table_shows_what_steers_as_escapes():
    page = rendered([{f"metric{HOSTILE}": HOSTILE}])
    assert not any(map(steers, page))
    assert "a\\x1b[2J\\x9b31m\\u202etxt\\x07\\x0d" in page
