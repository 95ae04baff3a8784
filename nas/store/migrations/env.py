"""Alembic's environment: it runs migrations on the connection in the attribute `connection` of its configuration.

There is no alembic.ini. `alembic.command.revision(config, autogenerate=True)` with such a configuration writes the next
migration, see `tests/nas/store/test_schema.py`.
"""

from alembic import context

from nas.store.models import metadata
from nas.store.schema import VERSION_TABLE

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    version_table=VERSION_TABLE,
    render_as_batch=True,
)
with context.begin_transaction():
    context.run_migrations()
