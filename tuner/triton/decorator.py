"""`@tuner.tune(...)`: replaces `triton.autotune` for a user's own kernels.

    @tuner.tune(space={"BLOCK": [256, 512, 1024], "num_warps": [2, 4, 8]}, key=["size"])
    @triton.jit
    def scale(x_ptr, y_ptr, size, BLOCK: tl.constexpr): ...

It takes the arguments of `triton.autotune` with the same meaning, and stores its results by device, driver, torch and
Triton, source of the kernel, key and dtypes. The first configuration is used until another is faster beyond the noise.
Nothing is tuned inside the capture of a CUDA graph, a trace of torch.compile, with NAS_TUNING=off, or inside a test
unless NAS_TUNING=on; stored results are used there too. `kernel.explain(...)` says which configuration a call uses and
why.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tuner.measure.measure import Clock
from tuner.search.backends import STORAGE, Guarded, Nowhere, backend
from tuner.triton import arguments
from tuner.triton import configurations as cases
from tuner.triton.options import Options, timer_of
from tuner.triton.tuned_kernel import TunedKernel


def tune(
    configs: Sequence[Any] | None = None,
    key: Sequence[str] = (),
    prune_configs_by: Mapping[str, Any] | None = None,
    reset_to_zero: Sequence[str] | None = None,
    restore_value: Sequence[str] | None = None,
    pre_hook: Callable[..., Any] | None = None,
    post_hook: Callable[..., Any] | None = None,
    warmup: int | None = None,
    rep: int | None = None,
    use_cuda_graph: bool = False,
    do_bench: Callable[..., Any] | None = None,
    cache_results: bool = True,
    *,
    space: Mapping[str, Sequence[Any]] | None = None,
    constraints: Iterable[Callable[[Mapping[str, Any]], bool]] = (),
    default: Mapping[str, Any] | None = None,
    effort: str = "quick",
    budget: float | None = None,
    strategy: str | None = None,
    seed: int = 0,
    store: str | Path | None = None,
    check: bool = True,
    deterministic: bool = False,
    limit: float | None = None,
    isolate: bool = True,
    clock: Clock | None = None,
) -> Callable[[Any], TunedKernel]:
    """Decorate a `triton.jit` kernel. It is tuned again for every new value of the arguments named in `key`.

    The arguments up to `cache_results` are those of `triton.autotune`; `cache_results=False` remembers results in this
    process only. configs: triton.Config or mappings; the first is the default. space: instead of configs, the values of
    each parameter, which may include `num_warps` and the like; the default is the first value of each, or `default`.
    constraints: conditions on a configuration; each is called with the configuration and the arguments of the call, by
    name. effort: none, quick (at most 40 configurations) or full (at most 250). budget: seconds for one key; by default
    120 for quick and 3600 for full. strategy: a name from `tuner.strategies`. store: a folder, a database file or a
    URL; by default $NAS_STORAGE, else a folder in the user's data directory. check: reject a configuration whose result
    differs from the default's. deterministic: also reject one whose result is not the same in every bit when it runs
    again. limit: seconds that the compilation of a configuration may take, and its first run; by default 60, and 180
    for full. isolate: compile and run each configuration in another process first, which may hang or crash. clock: see
    `tuner.measure.measure`. Raises ValueError that names the wrong argument.
    """
    configs, constraints = arguments.listed("configs", configs), arguments.listed("constraints", constraints) or ()
    key, reset_to_zero, restore_value = map(arguments.read_once, (key, reset_to_zero, restore_value))
    arguments.check(locals())
    arguments.check_configurations(configs or ())
    options = Options(
        configs=None if configs is None else tuple(map(cases.config, configs)),
        space=space,
        constraints=constraints,
        default=dict(default or {}),
        key=tuple(key),
        prune=dict(prune_configs_by or {}),
        reset_to_zero=tuple(reset_to_zero or ()),
        restore_value=tuple(restore_value or ()),
        pre_hook=pre_hook,
        post_hook=post_hook,
        timer=timer_of(do_bench, warmup, rep, use_cuda_graph),
        clock=clock,
        backend=Guarded(backend(store) if cache_results else Nowhere()),
        effort=effort,
        budget=budget,
        strategy=strategy,
        seed=seed,
        check=check,
        deterministic=deterministic,
        limit=limit,
        isolate=isolate,
        place=str(store or os.environ.get(STORAGE, "")),
    )
    return lambda fn: _decorated(fn, options)


def _decorated(fn: Any, options: Options) -> TunedKernel:
    """Raises ValueError if `fn` is no kernel of Triton."""
    if isinstance(fn, TunedKernel):
        raise ValueError(f"{fn.name} is decorated with tuner.tune twice: give all options to one.")
    if not hasattr(fn, "arg_names"):
        raise ValueError(
            f"tuner.tune decorates a kernel, but got {arguments.short(fn)}: put @triton.jit below @tuner.tune."
        )
    return TunedKernel(fn, options)
