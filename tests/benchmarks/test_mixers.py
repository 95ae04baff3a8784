"""The table of token mixers has every block that mixes positions."""

from benchmarks import mixers


def test_every_block_with_sizes_of_its_own_is_a_row():
    assert set(mixers.FIELDS) <= {kind.name for kind in mixers.mixers()}


def test_no_block_that_reads_other_positions_is_left_out():
    assert {"attention", "linear_attention", "lsh_attention", "convolution", "gru"} <= {
        kind.name for kind in mixers.mixers()
    }
