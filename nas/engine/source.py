"""Where proposals come from: the baselines first, then the strategy, then the remaining points of a small space."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from functools import cached_property

from nas.errors import AnswerProblem, NasError, StoreError
from nas.strategies.contract import NothingLeft, Proposal, Strategy
from searchspace.errors import SpaceError
from searchspace.model.architecture import Architecture
from searchspace.space.point import Point
from searchspace.space.space import Space

ATTEMPTS = 500  # after this many known proposals in a row, the space counts as exhausted
LISTED = 2000  # a space of at most this many points is listed, so that its last points are found
LISTED_ATTEMPTS = 50  # known proposals in a row before it is listed
SEARCHED_THROUGH = "The space is searched through: every architecture in it has been tried."


class Exhausted(NasError):
    """Everything that can be proposed has been tried."""


class ProposedNothing(Exhausted):
    """The strategy proposes nothing. The space may hold more, and a corrected strategy may find it."""


def broken(who: object, call: str, answer: object, expected: str) -> AnswerProblem:
    """The error about a strategy or a scheduler, `who`, that gave this answer to a call."""
    return AnswerProblem(f"{type(who).__name__}.{call} must return {expected}, but returned {answer!r}.")


class Source:
    """Proposes points that were not tried before. The order of the sources is fixed, so proposals can be replayed."""

    def __init__(
        self, space: Space, strategy: Strategy, baselines: Sequence[Architecture] = (), *, only_baselines: bool = False
    ):
        """only_baselines: propose nothing after them, as in an arm of architectures made by hand."""
        self.space, self.strategy, self.baselines = space, strategy, baselines
        self.only_baselines = only_baselines
        self.idle = ""  # that the strategy proposed nothing, if the remaining points were taken for this reason

    def propose(self, number: int, count: int, known: Collection[str]) -> list[Proposal]:
        """One to `count` proposals for the trials from `number` on; `known` are the hashes that were tried.

        Asking for fewer gives the first of the same proposals. Raises Exhausted if nothing is left.
        """
        baselines = [Proposal(Point({}, each), "baseline") for each in self.baselines]
        if found := _new(baselines, count, known):
            return found
        if self.only_baselines:
            raise Exhausted("All architectures of the list have been tried.")
        if self._is_searched_through(known):
            raise Exhausted(self._searched_through())
        found, why = self._asked(number, count, known)
        if found or (found := _new((Proposal(point, "the last ones") for point in self._points), count, known)):
            return found
        if self._is_small:
            raise Exhausted(self._searched_through())
        raise ProposedNothing(why) if self.idle else Exhausted(f"The space is searched through: {why}")

    def _asked(self, number: int, count: int, known: Collection[str]) -> tuple[list[Proposal], str]:
        """(new proposals of the strategy, "") or ([], why there are none). The space may still hold more."""
        attempts, answered, self.idle = LISTED_ATTEMPTS if self._is_small else ATTEMPTS, 0, ""
        try:
            for attempt in range(attempts):
                proposals = list(self.strategy.ask(number, count, attempt))
                if not all(isinstance(each, Proposal) for each in proposals):
                    raise broken(self.strategy, f"ask({number}, {count}, {attempt})", proposals, "a list of Proposal")
                if found := _until_known(proposals, known):
                    return found, ""
                answered += bool(proposals)
        except NothingLeft as error:
            return [], str(error)
        if answered:
            return [], f"{answered} proposals in a row had been tried already."
        self.idle = f"The strategy proposed nothing, {attempts} times in a row."
        return [], self.idle

    def _searched_through(self) -> str:
        """That everything was tried, whether the strategy took part to the end, and how architectures failed."""
        failures = getattr(self.strategy, "failure_summary", str)()
        said = f"{SEARCHED_THROUGH} {self.idle}".rstrip()
        return f"{said} Some failed: {failures}." if failures else said

    def _is_searched_through(self, known: Collection[str]) -> bool:
        """Whether every architecture of a small space is known; listed for this once half of them may be.

        Without the list it takes hundreds of known proposals to find out, which is seconds.
        """
        if not self._is_small or 2 * len(known) < (self.space.size().points or 0):
            return False
        return all(point.architecture.hash in known for point in self._points)

    @cached_property
    def _is_small(self) -> bool:
        points = self.space.size().points
        return points is not None and points <= LISTED

    @cached_property
    def _points(self) -> list[Point]:
        return [point for point in self.space.enumerate() if self.space.feasible(point)] if self._is_small else []


def _new(proposals: Iterable[Proposal], count: int, known: Collection[str]) -> list[Proposal]:
    """The first `count` distinct proposals that are not known."""
    found: dict[str, Proposal] = {}
    for proposal in proposals:
        if len(found) == count:
            break
        hash = proposal.point.architecture.hash
        if hash not in known:
            found.setdefault(hash, proposal)
    return list(found.values())


def _until_known(proposals: Sequence[Proposal], known: Collection[str]) -> list[Proposal]:
    """The proposals before the first one that is known or repeated. Their trials' numbers have no gap."""
    found: dict[str, Proposal] = {}
    for proposal in proposals:
        hash = proposal.point.architecture.hash
        if hash in known or hash in found:
            break
        found[hash] = proposal
    return list(found.values())


def point_of(space: Space, choices: dict, text: Callable[[], str], hash: str) -> Point | None:
    """The point of a recorded trial in `space`, which may have grown since; None if the trial is outside.

    text: reads the text of the architecture, which is seldom needed.
    """
    try:
        if choices:
            point = space.point(choices)
            if point.architecture.hash == hash:
                return point
    except SpaceError:
        pass  # chosen in an earlier version of the space
    return space.locate(Architecture.parse(text()))


def chosen_point(space: Space, choices: dict, hash: str) -> Point:
    """The point of a trial whose choices were made in this version of the space. To build it takes milliseconds.

    So its architecture is made when it is needed. Strategies need that of the parents of new proposals, not that of
    all trials.
    """

    def made() -> Architecture:
        found = space.point(choices).architecture
        if found.hash != hash:
            raise StoreError(
                f"The choices of the trial with the architecture {hash!r} give another one, {found.hash!r}."
            )
        return found

    return Point(choices, Architecture.deferred(hash, made))
