"""Random spaces for property tests: every kind of hole, nested repeats, ties, `each`, options that are lists."""

import random
from collections.abc import Callable

import pytest

from searchspace.errors import SpaceError
from searchspace.space.space import Space
from searchspace.tree import Block, Choice, Floats, Integers, Same, Value

WIDTH = 8


class _Builder:
    """Builds a random space. All decisions come from `rng`, so hypothesis can shrink examples."""

    def __init__(self, rng: random.Random):
        self.rng = rng
        self.names: list[str] = []

    def root(self) -> Block:
        return Block("decoder", {"width": WIDTH, "vocabulary": 5, "body": self.items(3, repeated=False)})

    def items(self, depth: int, repeated: bool) -> tuple[Value, ...]:
        return tuple(self.item(depth, repeated) for _ in range(self.rng.randint(1, 2)))

    def item(self, depth: int, repeated: bool) -> Value:
        kinds = ["leaf", "choice", "repeat", "residual", "sequence"] if depth > 0 else ["leaf"]
        return getattr(self, self.rng.choice(kinds))(depth, repeated)

    def leaf(self, depth: int, repeated: bool) -> Value:
        name = self.rng.choice(["attention", "convolution", "feed_forward"])
        return self.named(name, repeated)

    def named(self, name: str, repeated: bool) -> Block:
        if name == "attention":
            return Block(name, {"heads": self.number(repeated, 1, 2, 4)})
        if name == "convolution":
            return Block(name, {"kernel": self.number(repeated, 1, 2, 3)})
        return Block(name, {"expand": self.rng.randint(1, 2), "dropout": self.rng.choice([0.0, self.rate(repeated)])})

    def number(self, repeated: bool, *numbers: int) -> Value:
        kind = self.rng.randrange(4)
        if kind == 0:
            return numbers[0]
        if kind == 1 and self.names and self.rng.random() < 0.6:
            return Same(self.rng.choice(self.names))
        each, name = self.each(repeated), None
        if self.rng.random() < 0.3:
            name = f"number{len(self.names)}"
            self.names.append(name)
        if kind == 2 and numbers[-1] == 3:
            return Integers(1, self.rng.randint(1, 3), log=self.rng.random() < 0.5, each=each, name=name)
        return Choice(tuple(self.rng.sample(numbers, self.rng.randint(1, 2))), each=each, name=name)

    def rate(self, repeated: bool) -> Floats:
        return Floats(0.1, 0.3, step=0.2, each=self.each(repeated))

    def each(self, repeated: bool) -> bool:
        return repeated and self.rng.random() < 0.4

    def choice(self, depth: int, repeated: bool) -> Choice:
        """Options that begin with different blocks, so that they cannot overlap."""
        each = self.each(repeated)
        options: list[Value] = []
        for name in self.rng.sample(["attention", "convolution", "feed_forward"], self.rng.randint(1, 3)):
            block = self.named(name, repeated)
            if depth > 1 and self.rng.random() < 0.3:
                options.append((block, *self.items(depth - 2, repeated)))
            else:
                options.append(block)
        if self.rng.random() < 0.2:
            options.append(())
        return Choice(tuple(options), each=each)

    def repeat(self, depth: int, repeated: bool) -> Block:
        times: Value = self.rng.choice([1, 2, Integers(1, 2), Choice((1, 3), each=self.each(repeated))])
        if self.rng.random() < 0.2:
            times = Integers(1, 2, name=f"number{len(self.names)}")
            self.names.append(times.name)
        shared: Value = self.rng.choice([False, False, True, Choice((False, True))])
        return Block("repeat", {"times": times, "share_weights": shared, "of": self.items(depth - 1, True)})

    def residual(self, depth: int, repeated: bool) -> Block:
        norms = Choice((Block("layer_norm", {}), Block("rms_norm", {})), each=self.each(repeated))
        norm = self.rng.choice([Block("rms_norm", {}), norms])
        return Block("residual", {"norm": norm, "of": self.items(depth - 1, repeated)})

    def sequence(self, depth: int, repeated: bool) -> Block:
        return Block("sequence", {"of": self.items(depth - 1, repeated)})


@pytest.fixture(scope="session")
def random_space() -> Callable[[random.Random, int], Space | None]:
    """`random_space(rng, most)`: a space of at most `most` points, or None if `rng` does not give one."""

    def build(rng: random.Random, most: int) -> Space | None:
        try:
            space = Space(_Builder(rng).root())
            return space if space.size().discrete <= most else None
        except SpaceError as error:  # a tie to a hole that is filled elsewhere
            assert all("tied" in str(problem) or "!same" in str(problem) for problem in error.problems)
            return None

    return build
