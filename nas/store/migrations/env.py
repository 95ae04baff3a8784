"""Runs the migrations on the connection that the store hands over; there is no alembic.ini."""

from alembic import context

from nas.store.device_models import metadata
from nas.store.migrate import VERSION_TABLE

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    version_table=VERSION_TABLE,
    render_as_batch=True,
)
with context.begin_transaction():
    context.run_migrations()
