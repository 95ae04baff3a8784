"""Text that is safe to print: names and messages from a database may contain characters that control a terminal."""

from __future__ import annotations

import re

# Control characters (C0 without tab and newline, DEL, C1), characters that change the direction or order of text, line
# separators, and lone surrogates, which no terminal can print.
_STEERING = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]")


def visible(text: str) -> str:
    """`text` with every character that controls a terminal written as an escape, such as \\x1b."""
    return _STEERING.sub(_escape, text)


def visible_json(text: str) -> str:
    """The same for JSON, where such characters are inside strings: they are written as \\u001b."""
    return _STEERING.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def _escape(match: re.Match[str]) -> str:
    code = ord(match[0])
    return f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}"
