"""Times of the reference by itself."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

KEY = ("problem_hash", "device_name", "driver", "torch", "triton", "precision", "name")


def upgrade() -> None:
    """Add the table."""
    op.create_table(
        "baselines",
        *(sa.Column(name, sa.String(), nullable=False) for name in KEY),
        sa.Column("problem_name", sa.String(), nullable=False),
        sa.Column("shape", sa.String(), nullable=True),
        sa.Column("median_ms", sa.Double(), nullable=False),
        sa.Column("timing", sa.JSON(), nullable=False),
        sa.Column("over_eager", sa.JSON(), nullable=True),
        sa.Column("environment", sa.JSON(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint(*KEY, name="pk_baselines"),
    )
