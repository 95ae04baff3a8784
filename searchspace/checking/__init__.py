"""What every block promises, as checks: the tests run them on our blocks, `nas blocks test` on a user's own."""

from searchspace.checking import causality, costs, numerics, shapes, streaming
from searchspace.checking.cases import Case, cases
from searchspace.checking.contract import Check, failures
from searchspace.checking.graphs import compiles_as_one_graph, exports_as_a_program

CHECKS: tuple[Check, ...] = (
    *shapes.CHECKS,
    *causality.CHECKS,
    *streaming.CHECKS,
    *costs.CHECKS,
    *numerics.CHECKS,
)

__all__ = ["CHECKS", "Case", "Check", "cases", "compiles_as_one_graph", "exports_as_a_program", "failures"]
