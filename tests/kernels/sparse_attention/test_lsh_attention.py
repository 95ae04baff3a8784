"""The pieces of LSH attention: how a sequence is cut, and which keys a query reads."""

import pytest
import torch

from kernels.sparse_attention.lsh_attention import Cut, buckets_of, cut, lsh_attention


@pytest.mark.parametrize(
    ("length", "causal", "expected"),
    [
        (8, True, Cut(rounds=1, chunks=1, size=8, views=1)),
        (9, True, Cut(rounds=3, chunks=2, size=8, views=2)),
        (17, False, Cut(rounds=3, chunks=3, size=8, views=3)),
    ],
)
def test_a_sequence_longer_than_a_chunk_is_cut_in_every_round(length: int, causal: bool, expected: Cut) -> None:
    assert cut(length, 8, 3, ahead=not causal) == expected


def test_two_chunks_in_a_ring_are_each_other_s_only_neighbours() -> None:
    assert cut(9, 8, 1, ahead=True).views == 2
    q, v = torch.randn(2, 1, 2, 16, 4, dtype=torch.float64)
    whole = lsh_attention(q, q, v, torch.zeros(1, 2, 1, 16, dtype=torch.int64), chunk=8, causal=False)
    torch.testing.assert_close(whole, lsh_attention(q, q, v, None, chunk=16, causal=False))


def test_in_one_bucket_a_chunk_reads_itself_and_the_one_before_it_in_time() -> None:
    q, v = torch.randn(2, 1, 1, 20, 4, dtype=torch.float64)
    out = lsh_attention(q, q, v, torch.zeros(1, 1, 1, 20, dtype=torch.int64), chunk=5, causal=True)
    scores = q[0, 0] @ q[0, 0].T
    i, j = torch.arange(20)[:, None], torch.arange(20)
    scores = scores.masked_fill((j > i) | (j // 5 < i // 5 - 1), -1e9).fill_diagonal_(-1e5)
    torch.testing.assert_close(out[0, 0], scores.softmax(1) @ v[0, 0], atol=1e-12, rtol=1e-12)


def test_buckets_are_the_largest_of_the_rotated_vector_and_its_opposite() -> None:
    x, rotations = torch.randn(2, 3, 7, 4), torch.randn(4, 5, 6)
    found = buckets_of(x, rotations)
    rotated = torch.einsum("bhtd,drm->bhrtm", x, rotations)
    assert found.equal(torch.cat([rotated, -rotated], dim=4).argmax(4))
    assert buckets_of(x, rotations, torch.tensor([6, 2]))[0].equal(found[0])
    own = torch.stack([rotations, -rotations, rotations.flip(2)])
    rotated_by_own = torch.einsum("bhtd,hdrm->bhrtm", x, own)
    assert buckets_of(x, own).equal(torch.cat([rotated_by_own, -rotated_by_own], dim=4).argmax(4))
    few = rotated[1, ..., :2]
    assert buckets_of(x, rotations, torch.tensor([6, 2]))[1].equal(torch.cat([few, -few], dim=3).argmax(3))
