"""Alembic's entry: runs the revisions on the connection of `hilum.store.migrations.migrate`."""

from alembic import context

from hilum.store.schema.tables import metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    render_as_batch=True,
)
with context.begin_transaction():
    context.run_migrations()
