"""Calls of language models."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

TEXT, INT = sa.String(), sa.Integer()


def upgrade() -> None:
    """Add the table."""
    op.create_table(
        "calls",
        sa.Column("id", INT, nullable=False),
        sa.Column("run_id", TEXT, nullable=False),
        sa.Column("generation", INT, nullable=False),
        sa.Column("slot", INT, nullable=False),
        sa.Column("attempt", INT, nullable=False),
        sa.Column("role", TEXT, nullable=False),
        sa.Column("model", TEXT, nullable=False),
        sa.Column("prompt", TEXT, nullable=False),
        sa.Column("reply", TEXT, nullable=False),
        sa.Column("outcome", TEXT, nullable=False),
        sa.Column("message", TEXT, nullable=False),
        sa.Column("tokens_in", INT, nullable=False),
        sa.Column("tokens_cached", INT, nullable=False),
        sa.Column("tokens_out", INT, nullable=False),
        sa.Column("estimated", sa.Boolean(), nullable=False),
        sa.Column("cost_usd", sa.Double(), nullable=True),
        sa.Column("seconds", sa.Double(), nullable=False),
        sa.Column("requests", INT, nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_calls"),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name="fk_calls_run_id"),
    )
    op.create_index("ix_calls_run_id", "calls", ["run_id"])
