"""Write nas/tasks/text/python_sources.xz, the corpus that text tasks read without `data`.

    python3.11 scripts/make_corpus.py     # needs exactly the version of Python below; writes the same bytes every time

The files are those of the standard library with the lowest SHA-256, so that no letter or subject is preferred. Files
above 32,000 bytes are left out, because a few long files would be most of a held-out part. Each file is whole, with the
notices in it. The licence of Python is written next to them.
"""

from __future__ import annotations

import hashlib
import platform
import sys
import sysconfig
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from nas.tasks.text import corpus

VERSION = "3.11.7"
SHORTEST, LONGEST = 300, 32_000  # bytes of a file
SIZE = 2_800_000  # bytes of all files, at least


def chosen(root: Path) -> list[tuple[str, bytes]]:
    """The names and the bytes of the chosen files, in the order of their names."""
    fit = [(name, data) for name, data in corpus.sources(root) if SHORTEST <= len(data) <= LONGEST]
    fit.sort(key=lambda file: hashlib.sha256(file[1]).digest())
    found, total = [], 0
    for name, data in fit:
        if total >= SIZE:
            break
        found.append((name, data))
        total += len(data)
    return sorted(found)


def main() -> None:
    """Write the corpus and the licence. Exits with a message for another version of Python."""
    if platform.python_version() != VERSION:
        sys.exit(f"The corpus is made by Python {VERSION}, but this is Python {platform.python_version()}.")
    root = Path(sysconfig.get_paths()["stdlib"])
    files = chosen(root)
    corpus.PACKED.write_bytes(corpus.pack(files))
    corpus.PACKED.with_name("python_license.txt").write_bytes((root / "LICENSE.txt").read_bytes())
    joined = b"".join(data for _, data in files)
    print(f"{len(files)} files, {len(joined):,} bytes, {corpus.PACKED.stat().st_size:,} bytes packed")
    print(f"SHA256 = {hashlib.sha256(joined).hexdigest()!r}")


if __name__ == "__main__":
    main()
