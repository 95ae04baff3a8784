"""The tables of 0.1.0.

A new database is made whole from `nas.store.models` and marked with the newest revision, so this revision changes
nothing: it is the one from which the first migration starts.
"""

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Nothing comes before this revision."""
