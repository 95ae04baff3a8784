"""Models of a known family that are as large, as expensive or as fast as another model: its baselines.

from searchspace.matching import matched
matched("transformer", winner, length=1024)                             as many parameters, to about 3%
matched("primer", winner, match="flops", shape="wide", length=1024)     as many training FLOPs, fewer and wider layers
"""

from __future__ import annotations

from searchspace.matching.families import available
from searchspace.matching.matched import MATCHES, Matched, matched
from searchspace.matching.search import SHAPES

__all__ = ["MATCHES", "SHAPES", "Matched", "available", "matched"]
