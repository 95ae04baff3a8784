"""Keeps compiled templates on disk. To compile them takes longer than to fill in a page."""

from __future__ import annotations

import contextlib
import sys
from hashlib import sha256
from importlib.util import cache_from_source
from pathlib import Path

import jinja2
from jinja2.bccache import Bucket

from nas.errors import NasError
from nas.files import write_whole

CHECKSUM = 32  # bytes
TEMPLATES = Path(__file__).resolve().parent.parent / "templates"


class Compiled(jinja2.BytecodeCache):
    """Compiled templates, kept where Python would keep compiled modules of their folder.

    A template is compiled again if its text or one of the `options` of the environment has changed, or if the file is
    damaged: it begins with the checksum of what follows. If the folder cannot be written, it is compiled each time.
    """

    def __init__(self, **options: object) -> None:
        self.options = options

    def get_source_checksum(self, source: str) -> str:
        """The checksum of what the compiled template depends on."""
        return super().get_source_checksum(f"{self.options}\n{source}")

    def load_bytecode(self, bucket: Bucket) -> None:
        """Fill the bucket, if there is a file for it."""
        with contextlib.suppress(OSError):
            kept = _file(bucket).read_bytes()
            checksum, compiled = kept[:CHECKSUM], kept[CHECKSUM:]
            if checksum == sha256(compiled).digest():
                bucket.bytecode_from_string(compiled)

    def dump_bytecode(self, bucket: Bucket) -> None:
        """Keep the bucket in a file, unless Python was told to keep none."""
        file = _file(bucket)
        if not sys.dont_write_bytecode:
            with contextlib.suppress(OSError, NasError):
                file.parent.mkdir(parents=True, exist_ok=True)
                compiled = bucket.bytecode_to_string()
                write_whole(file, sha256(compiled).digest() + compiled)


def _file(bucket: Bucket) -> Path:
    return Path(cache_from_source(str(TEMPLATES / f"{bucket.key}.html"))).with_suffix(".jinja")
