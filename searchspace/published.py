"""How a block relates to its paper and to the code that was published with it: facts that each block registers.

`docs/published.md` is made from them; see `searchspace.comparison`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, kw_only=True)
class Published:
    """The differences between a block with its default options, its paper and the released code.

    paper: where the defaults differ from the paper. Empty if the block with its defaults follows the paper.
    code: the public code that the block was compared with, each as `owner/name` of GitHub or as the name of a library.
    released: where that code differs from the paper. If it differs from other public code, the text names the code.

    The keys of `paper` and `released` are short phrases without a full stop. The values are the options of the block
    that give this form, as in a search file (`same_length: true`); a value is "" if no option gives it.
    """

    paper: Mapping[str, str] = field(default_factory=dict)
    code: tuple[str, ...] = ()
    released: Mapping[str, str] = field(default_factory=dict)
