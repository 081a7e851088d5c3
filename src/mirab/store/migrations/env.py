"""What alembic runs: the connection and its transaction are the caller's."""

from __future__ import annotations

from alembic import context

from mirab.store.forms import VERSION_TABLE
from mirab.store.tables import metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    version_table=VERSION_TABLE,
    transactional_ddl=False,
)
context.run_migrations()
