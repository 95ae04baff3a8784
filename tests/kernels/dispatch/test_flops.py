"""Torch's FLOP counter knows our operators even if it is imported after them; other tests import it first."""


def test_a_counter_that_is_imported_later_is_told(another_process):
    assert another_process["flops"] == 4 * 2 * 8 * 8 * 4
