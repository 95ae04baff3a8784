"""Every scheduler, as the tests of all of them make it."""

import pytest

from nas.schedulers.registry import make


@pytest.fixture(params=["full", "halving", "one rung", "hyperband", "hurdles"])
def new(request):
    """Makes the same scheduler again each time it is called."""
    return {
        "full": lambda: make("full", steps=9),
        "halving": lambda: make("halving", rungs=[2, 6, 18], factor=2),
        "one rung": lambda: make("halving", rungs=[7]),
        "hyperband": lambda: make("hyperband", rungs=[1, 3, 9, 27], brackets=3),
        "hurdles": lambda: make("hurdles", rungs=[4, 8, 12, 16], wait=3),
    }[request.param]
