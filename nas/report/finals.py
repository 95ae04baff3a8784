"""Reads the verdict of the finals of a study from the store."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nas.finals.verdict import Verdict
    from nas.store import Reader, Study


def verdict(store: Reader, study: Study) -> Verdict | None:
    """The newest verdict of `study`; None if its finals have not ended."""
    found = store.verdict(study.id)
    if found is None:
        return None
    from nas.finals.verdict import Verdict  # pydantic: only a study with a verdict needs it

    outdated = ""
    if found.document["sequence"] < store.mark(study.id).sequence:
        outdated = "units have ended since"
    elif not answers(found.document, study.config.get("finals")):
        outdated = "the search file has other finals now, and `nas search` has not ended them"
    return Verdict(**found.document, created_at=found.created_at, outdated=outdated)


def answers(document: Mapping[str, Any], finals: Mapping[str, Any] | None) -> bool:
    """Whether a stored verdict answers a search file with these finals: it is of them, or `nas verdict` extended them.

    If the file has no finals, each verdict answers it.
    """
    if not finals or not finals.get("top"):
        return True
    return finals in (document["finals"], document["extends"])
