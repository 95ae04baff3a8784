"""Verdicts are kept as they were reached; the newest counts."""


def test_the_newest_verdict_counts(store, study):
    assert store.verdict(study.id) is None
    store.add_verdict(study.id, {"word": "worse"})
    first = store.verdict(study.id)
    store.add_verdict(study.id, {"word": "better", "runs": [3, 3]})
    second = store.verdict(study.id)

    assert (first.document, second.document) == ({"word": "worse"}, {"word": "better", "runs": [3, 3]})
    assert second.created_at >= first.created_at


def test_a_verdict_belongs_to_its_study(store, study):
    other = store.create_study("other", {}, "space", 0, [{"name": "bits", "direction": "minimize"}])
    store.add_verdict(study.id, {"word": "worse"})

    assert store.verdict(other.id) is None
