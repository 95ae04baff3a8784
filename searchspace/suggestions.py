"""Suggests the known name that was probably meant: what other libraries call it, or a name that is spelled alike."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from itertools import islice

LONGEST = 2_000  # characters of a name: to compare longer ones takes too long
MOST_KNOWN = 500  # names to compare with: a file may define any number of them
ALIKE = 0.6  # of difflib: with 0.5, `epochs` would suggest `blocks`
SHORTEST = 3  # letters of a name that may stand for a longer one: `rms` for `rms_norm`

# What other libraries call a name. It is suggested only where the name on the right is valid.
SYNONYMS = {
    # blocks
    "self_attention": "attention", "multi_head_attention": "attention", "multihead_attention": "attention",
    "mha": "attention", "softmax_attention": "attention", "local_attention": "sliding_window_attention",
    "mlp": "feed_forward", "ffn": "feed_forward", "dense": "feed_forward",
    "swiglu": "gated_feed_forward", "geglu": "gated_feed_forward", "reglu": "gated_feed_forward",
    "glu": "gated_linear_unit", "rope": "rotary", "rotary_embedding": "rotary", "sin": "sinusoidal",
    # options of blocks and models
    "kv_heads": "key_value_heads", "num_kv_heads": "key_value_heads", "n_kv_heads": "key_value_heads",
    "num_key_value_heads": "key_value_heads", "num_heads": "heads", "n_heads": "heads", "n_head": "heads",
    "d_model": "width", "dim": "width", "hidden_size": "width", "n_embd": "width", "vocab_size": "vocabulary",
    "vocab": "vocabulary", "num_layers": "times", "n_layers": "times", "n_layer": "times", "depth": "times",
    # tasks, criteria and costs
    "mse": "mean_squared_error", "l2_loss": "mean_squared_error", "nll": "cross_entropy", "ce": "cross_entropy",
    "lm": "language_model", "mlm": "masked_language_model", "params": "parameters",
    # strategies, schedulers and keys of a search file
    "tpe": "optuna", "bayesian": "optuna", "bayesian_optimization": "optuna", "cma_es": "optuna", "gp": "optuna",
    "evolution": "aging_evolution", "regularized_evolution": "aging_evolution",
    "asha": "halving", "sha": "halving", "successive_halving": "halving",
    "name": "study", "study_name": "study",
    # training
    "lr": "learning_rate", "max_lr": "learning_rate", "wd": "weight_decay", "l2": "weight_decay",
    "beta": "betas", "beta1": "betas", "beta2": "betas", "adam_betas": "betas",
    "grad_clip": "clip", "gradient_clip": "clip", "clip_grad_norm": "clip", "max_grad_norm": "clip", "max_norm": "clip",
    "optimizer": "optimiser", "optim": "optimiser", "scheduler": "schedule", "lr_scheduler": "schedule",
    "lr_schedule": "schedule", "decay": "schedule", "loss": "criterion", "loss_function": "criterion",
    "warmup_steps": "warmup", "warmup_ratio": "warmup", "warm_up": "warmup", "min_lr": "floor", "final_lr": "floor",
    "dtype": "precision", "amp": "precision", "mixed_precision": "precision",
    "epochs": "steps", "max_steps": "steps", "iterations": "steps", "num_workers": "workers", "batch_size": "batch",
    "seq_len": "length", "context_length": "length",
}  # fmt: skip
OPTIONS = {"swiglu": "gate: silu", "geglu": "gate: gelu", "reglu": "gate: relu"}  # that the suggested name then needs


def nearest(name: str, known: Iterable[str]) -> str:
    """ " Did you mean 'x'?" for the one of the `known` names that was probably meant, or "" if there is none.

    A very long name, or one among very many known names, gets no answer: to compare them takes too long.
    """
    name, names = str(name), [str(each) for each in islice(known, MOST_KNOWN + 1)]
    if len(names) > MOST_KNOWN or len(name) > LONGEST:
        return ""
    if SYNONYMS.get(name.lower()) in names:
        option = OPTIONS.get(name.lower())
        return f" Did you mean {SYNONYMS[name.lower()]!r}{f' with {option}' if option else ''}?"
    close = difflib.get_close_matches(name, names, n=1, cutoff=ALIKE) or _swapped(name, names) or _longer(name, names)
    return f" Did you mean {close[0]!r}?" if close else ""


def _swapped(name: str, names: Iterable[str]) -> list[str]:
    """The names with the same letters in another order: `tyni` for `tiny`."""
    return [each for each in names if sorted(each) == sorted(name)]


def _longer(name: str, names: Iterable[str]) -> list[str]:
    """The names that begin with `name`, the shortest first."""
    return sorted((each for each in names if len(name) >= SHORTEST and each.startswith(name)), key=len)
