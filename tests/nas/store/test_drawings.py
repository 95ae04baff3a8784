"""The drawing of an architecture belongs to its study, and the first one is kept."""

from sqlalchemy import text

LINES = {"length": 8, "lines": [[0, f"block {number}", "", [1, 8, 4], 1, False, [1] * 6] for number in range(60)]}


def drawn(store, study, number):
    return store.drawing(study.id, store.trial(study.id, number).architecture_hash)


def test_the_first_drawing_of_an_architecture_is_kept(store, study, add):
    add(store, study, 0, drawing=LINES)
    add(store, study, 1, architecture=("0000", "width: 0"), seed=1, drawing={"length": 9})
    add(store, study, 2)

    assert drawn(store, study, 0) == drawn(store, study, 1) == LINES
    assert drawn(store, study, 2) is None
    with store.database.engine.connect() as connection:
        assert connection.execute(text("SELECT length(packed) FROM drawing")).scalar() < 1000


def test_studies_have_drawings_of_their_own(store, study, add):
    other = store.create_study("other", {}, "kind: decoder", 7, study.objectives)
    add(store, study, 0, drawing=LINES)
    add(store, other, 0, drawing={"length": 9})
    store.delete_study(study.id)

    assert drawn(store, other, 0) == {"length": 9}
    with store.database.engine.connect() as connection:
        assert connection.execute(text("SELECT count(*) FROM drawing")).scalar() == 1
