"""An unknown name suggests the known one that was probably meant, and nothing if none is like it."""

import pytest

from searchspace import registry
from searchspace.suggestions import OPTIONS, SYNONYMS, nearest


@pytest.mark.parametrize(
    ("name", "role", "meant"),
    [
        ("self_attention", "block", "'attention'?"),
        ("mlp", "block", "'feed_forward'?"),
        ("ffn", "block", "'feed_forward'?"),
        ("swiglu", "block", "'gated_feed_forward' with gate: silu?"),
        ("SwiGLU", "block", "'gated_feed_forward' with gate: silu?"),
        ("atention", "block", "'attention'?"),
        ("rope", "position", "'rotary'?"),
        ("rms", "norm", "'rms_norm'?"),
    ],
)
def test_a_block_by_the_name_of_another_library_or_a_wrong_spelling(name, role, meant):
    assert nearest(name, registry.block_types(role)) == f" Did you mean {meant}"


@pytest.mark.parametrize(
    ("name", "known", "meant"),
    [
        ("asha", ["pasha", "halving"], "halving"),
        ("successive_halving", ["full", "halving"], "halving"),
        ("tpe", ["auto", "optuna"], "optuna"),
        ("bayesian", ["auto", "optuna"], "optuna"),
        ("name", ["study", "space"], "study"),
    ],
)
def test_parts_of_a_search_by_the_name_of_another_library(name, known, meant):
    assert nearest(name, known) == f" Did you mean {meant!r}?"


def test_options_of_a_block():
    assert "'key_value_heads'" in nearest("kv_heads", registry.block_type("attention").fields)
    assert "'heads'" in nearest("num_heads", registry.block_type("attention").fields)


@pytest.mark.parametrize(("name", "known"), [("epochs", ["blocks"]), ("optimiser", ["limits"]), ("ro", ["rotary"])])
def test_nothing_is_suggested_that_is_hardly_alike(name, known):
    assert nearest(name, known) == ""


def test_a_synonym_is_suggested_only_where_it_is_valid():
    assert nearest("mlp", ["mlp2", "gru"]) == " Did you mean 'mlp2'?"


def test_synonyms_are_no_names_themselves_and_name_blocks_that_exist():
    blocks = set(registry.block_types())
    assert not SYNONYMS.keys() & blocks
    assert {"attention", "feed_forward", "gated_feed_forward", "rotary"} <= blocks & set(SYNONYMS.values())
    for name, option in OPTIONS.items():
        key, _, value = option.partition(": ")
        assert key in registry.block_type(SYNONYMS[name]).fields and value
