"""SVG elements as text. Attributes and texts are escaped here and nowhere else."""

from __future__ import annotations

from html import escape


def escaped(text: str) -> str:
    """Text that is valid in HTML and in XML: without control characters."""
    plain = text if text.isprintable() else "".join(each if each.isprintable() else " " for each in text)
    return escape(plain, quote=True)


def element(name: str, *inside: str, **attributes: str | float) -> str:
    """An element. inside: markup. The attribute `kind` becomes the class, `_` a hyphen; numbers have one decimal."""
    written = "".join(
        f' {"class" if key == "kind" else key.replace("_", "-")}="{_number(value)}"'
        for key, value in attributes.items()
    )
    return f"<{name}{written}>{''.join(inside)}</{name}>"


def label(text: str, x: float, y: float, anchor: str = "middle", kind: str = "") -> str:
    """A text of one line."""
    own = {"kind": kind} if kind else {}
    return element("text", escaped(text), x=x, y=y, text_anchor=anchor, **own)


def _number(value: str | float) -> str:
    return escaped(value) if isinstance(value, str) else f"{value:.1f}".removesuffix(".0")
