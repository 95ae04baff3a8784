"""Options that do not fit together: block | options (dim is 8 unless it is written) | what the error says."""

# ruff: noqa: E501

import pytest
import yaml

from searchspace.registry import block_type

REFUSED = r"""
additive_attention | {alignment: 0} | alignment must be at least 1, but got 0
additive_attention | {heads: 3} | dim must be a multiple of heads, but got dim=8, heads=3
additive_attention | {over: memory} | this model has no encoder; use over='self'
attending_gru | {dim: 5, memory: true} | dim must be even: .* but got dim=5
attending_gru | {alignment: 0, memory: true} | alignment must be at least 1, but got 0
attending_gru | {} | this model has no encoder; use gru
attention | {dim: 10} | dim must be a multiple of heads, but got dim=10, heads=4
attention | {dropout: 1.0} | dropout must lie in
attention | {key_value_heads: 3} | multiple of key_value_heads, but got heads=4, key_value_heads=3
attention | {over: memory} | this model has no encoder; use over='self'
causal_long_short_attention | {chunks: 0} | chunks must be at least 1, but got 0
causal_long_short_attention | {chunks: 2, compress: mixed} | chunks must hold the positions that the window reads.*chunks=2
causal_long_short_attention | {compress: mixed, segment: 6} | segment must be a multiple of chunk.*segment=6, chunk=4
causal_long_short_attention | {chunks: null, compress: mixed_from_zeros} | chunks must be a number with mixed_from_zeros
causal_long_short_attention | {window: 3} | window must be at least chunk.*window=3, chunk=4
causal_long_short_attention | {dim: 9, heads: 3} | dim must be even, but got 9
convolution | {dim: 4, kernel: 0} | kernel must be at least 1, but got 0
favor_attention | {epsilon: -1.0} | ^epsilon must be at least 0, but got -1\.0
favor_attention | {features: 0} | features must be at least 1, but got 0
favor_attention | {kernel: relu, relu_epsilon: -1.0} | relu_epsilon must be at least 0, but got -1\.0
feed_forward | {chunks: 0, dim: 4} | chunks must be at least 1, but got 0
feed_forward | {dim: 4, dropout: -0.1} | dropout must lie in
feed_forward | {dim: 4, expand: 0} | expand must be at least 1, but got 0
feed_forward | {dim: 4, hidden: 0} | hidden must be at least 1, but got 0
funnel_attention | {heads: 3} | multiple of heads
funnel_attention | {dim: 9, heads: 3} | dim must be even, but got 9
gated_feed_forward | {dim: 4, expand: 0} | expand must be at least 1, but got 0
gated_feed_forward | {dim: 4, hidden: 0} | hidden must be at least 1, but got 0
gated_linear_unit | {dim: 4, dropout: 1.0} | dropout must lie in
gated_random_feature_attention | {pool: 0} | pool must be at least 1, but got 0
grid | {dim: 4, rows: 0} | rows must be at least 1
grid | {dim: 6, kind: sinusoidal} | multiple of 4, but got 6
learned | {dim: 4, length: 0} | length must be at least 1, but got 0
linear_attention | {heads: 3} | dim must be a multiple of heads, but got dim=8, heads=3
linear_attention | {over: memory} | this model has no encoder; use over='self'
linformer_attention | {length: 8, slots: 9} | length must be at least slots, but got length=8, slots=9
long_short_attention | {slots: 0} | slots must be at least 1, but got 0
long_short_attention | {window: 5} | window must be even, with half of it on each side, but got 5
longformer_attention | {dilated_heads: 9} | dilated_heads must be a multiple of 1 between 1 and heads=4, but got 9
longformer_attention | {dilation: 0} | dilation must be at least 1, but got 0
longformer_attention | {global_tokens: -1} | global_tokens must be at least 0, but got -1
longformer_attention | {window: 5} | window must be even, with half of it on each side, but got window=5
nadaraya_watson | {dim: 10} | dim must be a multiple of heads, but got dim=10, heads=4
nadaraya_watson | {bandwidth: 0.0} | bandwidth must be above 0, but got 0\.0
nadaraya_watson | {kernel: boxcar, learned: head} | but got learned='head', project=False; use another kernel
nadaraya_watson | {kernel: boxcar, project: true} | but got learned='none', project=True; use another kernel
nadaraya_watson | {over: memory} | this model has no encoder; use over='self'
nystrom_attention | {exact: true, segments: front} | exact needs segments balanced or padded, but segments is front
nystrom_attention | {kernel: 4} | kernel must be odd, or 0 for no convolution, but got 4
nystrom_attention | {landmarks: 0} | landmarks must be at least 1, but got 0
nystrom_attention | {padding_counts: zeros, released: true} | released sets padding_counts to true, but it is zeros
random_feature_attention | {form: released, kernel: arc_cosine} | The released form has the kernel gaussian, but the kernel is arc_cosine
random_feature_attention | {temperature: 0.0} | temperature must be above 0, but got 0\.0
separable_convolution | {dim: 4, kernel: 0} | kernel must be at least 1, but got 0
separable_convolution | {dim: 4, width: 0.1} | width must leave at least one channel, but got width=0\.1 of 4
shaw_attention | {clip: 0} | clip must be at least 1, but got 0
sinusoidal | {dim: 7} | dim must be even, but got 7
sliding_window_attention | {window: 0} | window must be at least 1, but got 0
sparse_attention | {composition: heads, heads: 1} | two heads or more, but got heads=1
sparse_attention | {pattern: fixed, stride: 8, summary: 2, summary_by_head: true, summary_runs: 5} | summary_runs must be at most 4, the number of summaries of 2 .* but got 5
sparse_attention | {pattern: fixed, stride: 8, summary: 2, summary_runs: 2} | summary_runs=2 needs heads that read different summaries
sparse_attention | {pattern: fixed, stride: 8, summary: 9} | summary must be at most stride, but got summary=9, stride=8
t5_attention | {buckets: 7} | buckets must be even and at least 4, because each direction.* but got 7
t5_attention | {buckets: 1, causal: true} | buckets must be at least 2, but got 1
t5_attention | {max_distance: 8} | beyond the 8 distances .* got max_distance=8, buckets=32
"""


@pytest.mark.parametrize("row", REFUSED.strip().splitlines())
def test_options_that_do_not_fit_are_refused(row):
    name, fields, message = row.split(" | ")
    with pytest.raises(ValueError, match=message):
        block_type(name).config(**{"dim": 8, **yaml.safe_load(fields)})
