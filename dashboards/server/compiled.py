"""Keeps compiled templates on disk. To compile them takes longer than to fill in a page."""

from __future__ import annotations

import contextlib
import sys
from importlib.util import cache_from_source
from pathlib import Path
from types import CodeType

import jinja2
from jinja2.bccache import Bucket

from nas.errors import NasError
from nas.files import write_whole

TEMPLATES = Path(__file__).resolve().parent.parent / "templates"


class Compiled(jinja2.BytecodeCache):
    """Compiled templates, kept where Python would keep compiled modules of their folder.

    A template is compiled again if its text or one of the `options` of the environment has changed, or if the file
    cannot be used. If the folder cannot be written, it is compiled each time.
    """

    def __init__(self, **options: object) -> None:
        self.options = options

    def get_source_checksum(self, source: str) -> str:
        """The checksum of what the compiled template depends on."""
        return super().get_source_checksum(f"{self.options}\n{source}")

    def load_bytecode(self, bucket: Bucket) -> None:
        """Fill the bucket, if there is a file for it."""
        with contextlib.suppress(Exception):  # a damaged file raises anything
            bucket.bytecode_from_string(_file(bucket).read_bytes())
        if not isinstance(bucket.code, CodeType):
            bucket.reset()

    def dump_bytecode(self, bucket: Bucket) -> None:
        """Keep the bucket in a file, unless Python was told to keep none."""
        file = _file(bucket)
        if not sys.dont_write_bytecode:
            with contextlib.suppress(OSError, NasError):
                file.parent.mkdir(parents=True, exist_ok=True)
                write_whole(file, bucket.bytecode_to_string())


def _file(bucket: Bucket) -> Path:
    return Path(cache_from_source(str(TEMPLATES / f"{bucket.key}.html"))).with_suffix(".jinja")
