"""The same search with other seeds: each repeat is a study of its own."""

from __future__ import annotations

from collections.abc import Iterator

from nas.config.schema import MOST_SEED, SearchConfig
from nas.errors import UsageError


def repeats(config: SearchConfig, times: int) -> Iterator[SearchConfig]:
    """`config` itself, then with the next seeds, `times` in all. Raises ValueError if `times` is below 1, UsageError if
    the last seed would be too large.

    The name of a repeat is that of the study with `-seed` and its seed. It has its own folder of checkpoints. It also
    has its own database, if the database is named after the study.
    """
    if times < 1:
        raise ValueError(f"times must be at least 1, but got {times}.")
    if config.seed + times - 1 > MOST_SEED:
        raise UsageError(f"seed: {config.seed} leaves no {times} seeds; the largest is {MOST_SEED}.")
    yield config
    for seed in range(config.seed + 1, config.seed + times):
        name = f"{config.study}-seed{seed}"
        own = f"/{config.study}.db"
        storage = config.storage
        if storage.endswith(own):
            storage = f"{storage.removesuffix(own)}/{name}.db"
        checkpoints = config.checkpoints and f"{config.checkpoints.rstrip('/')}-seed{seed}"
        yield config.model_copy(update={"study": name, "seed": seed, "storage": storage, "checkpoints": checkpoints})
