"""What trials cost and how a search ended; options whose default has changed are written into the older studies.

A study stores what its search file said, and a file leaves most options out. Each function of `KEEP` writes the default
of that time into the stored configuration, which is plain data, so that the study goes on as it was.
"""

import json
from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("study", sa.Column("ending", sa.Text(), nullable=True))
    op.add_column("trial", sa.Column("parameters", sa.BigInteger(), nullable=True))
    op.add_column("trial", sa.Column("step_flops", sa.Double(), nullable=True))
    connection = op.get_bind()
    for study, written in connection.execute(sa.text("SELECT id, config FROM study")).all():
        config = json.loads(written)
        for keep in KEEP:
            keep(config)
        values = {"study": study, "config": json.dumps(config, separators=(",", ":"))}
        connection.execute(sa.text("UPDATE study SET config = :config WHERE id = :study"), values)


def pareto_ranks(config: dict[str, Any]) -> None:
    """`halving` promoted by Pareto ranks."""
    _default(config.get("scheduler"), "halving", "rank", "pareto")


def twenty_random_trials(config: dict[str, Any]) -> None:
    """Evolution began after 20 random trials, whatever the budget."""
    for part in (config, *config.get("arms", {}).values()):
        for name in ("aging_evolution", "nsga2"):
            _default(part.get("strategy"), name, "start", 20)


def text_by_position(config: dict[str, Any]) -> None:
    """Text tasks divided their text by position, scored a part of it, and read the first 2 MB of Python's sources."""
    task = config.get("task")
    for name, evaluation in (
        ("language_model", 32_768),
        ("masked_language_model", 32_768),
        ("disturbed_text", 32_768),
        ("reversal", 8_192),
    ):
        _default(task, name, "split_by", "position")
        _default(task, name, "evaluation", evaluation)
        _default(task, name, "data", "standard_library_2mb")


def _default(part: Any, name: str, option: str, value: Any) -> None:
    if isinstance(part, dict) and part.get("name") == name:
        part.setdefault("options", {}).setdefault(option, value)


KEEP = (pareto_ranks, twenty_random_trials, text_by_position)
