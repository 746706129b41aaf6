"""Alembic's entry: migrate over the connection that `stages.archive.database` hands in, inside its transaction."""

from alembic import context

from kernelwright.stages.archive.migrations import is_mapped
from kernelwright.stages.archive.models import Base

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=Base.metadata,
    include_name=is_mapped,
    render_as_batch=True,
    transactional_ddl=True,
)
context.run_migrations()
