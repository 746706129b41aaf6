"""The first tables and views."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

TEXT, INT, TIME = sa.String(), sa.Integer(), sa.DateTime(timezone=True)


def upgrade() -> None:
    """Create everything."""
    op.create_table(
        "problems",
        sa.Column("hash", TEXT, nullable=False),
        sa.Column("name", TEXT, nullable=False),
        sa.Column("origin", TEXT, nullable=False),
        sa.Column("shape", TEXT, nullable=True),
        sa.Column("source", TEXT, nullable=False),
        sa.Column("signature", TEXT, nullable=False),
        sa.Column("functional", TEXT, nullable=False),
        sa.Column("flops", sa.BigInteger(), nullable=False),
        sa.Column("bytes_least", sa.BigInteger(), nullable=False),
        sa.Column("captured_by", TEXT, nullable=False),
        sa.Column("created_at", TIME, nullable=False),
        sa.PrimaryKeyConstraint("hash", name="pk_problems"),
    )
    op.create_index("ix_problems_name", "problems", ["name"])
    op.create_index("ix_problems_signature", "problems", ["signature"])
    op.create_table(
        "candidates",
        sa.Column("problem_hash", TEXT, nullable=False),
        sa.Column("hash", TEXT, nullable=False),
        sa.Column("source", TEXT, nullable=False),
        sa.Column("backend", TEXT, nullable=False),
        sa.Column("proposer", TEXT, nullable=False),
        sa.Column("directive", TEXT, nullable=False),
        sa.Column("template", TEXT, nullable=False),
        sa.Column("tunables", sa.JSON(), nullable=False),
        sa.Column("library_ops", sa.JSON(), nullable=False),
        sa.Column("parents", sa.JSON(), nullable=False),
        sa.Column("created_at", TIME, nullable=False),
        sa.PrimaryKeyConstraint("problem_hash", "hash", name="pk_candidates"),
        sa.ForeignKeyConstraint(["problem_hash"], ["problems.hash"], name="fk_candidates_problem_hash"),
    )
    op.create_index("ix_candidates_hash", "candidates", ["hash"])
    op.create_table(
        "lineage",
        sa.Column("problem_hash", TEXT, nullable=False),
        sa.Column("child", TEXT, nullable=False),
        sa.Column("parent", TEXT, nullable=False),
        sa.PrimaryKeyConstraint("problem_hash", "child", "parent", name="pk_lineage"),
    )
    op.create_table(
        "runs",
        sa.Column("id", TEXT, nullable=False),
        sa.Column("problem_hash", TEXT, nullable=False),
        sa.Column("device", TEXT, nullable=False),
        sa.Column("settings", sa.JSON(), nullable=False),
        sa.Column("status", TEXT, nullable=False),
        sa.Column("stop", TEXT, nullable=False),
        sa.Column("started_at", TIME, nullable=False),
        sa.Column("ended_at", TIME, nullable=True),
        sa.PrimaryKeyConstraint("id", name="pk_runs"),
        sa.ForeignKeyConstraint(["problem_hash"], ["problems.hash"], name="fk_runs_problem_hash"),
    )
    op.create_table(
        "proposals",
        sa.Column("run_id", TEXT, nullable=False),
        sa.Column("generation", INT, nullable=False),
        sa.Column("slot", INT, nullable=False),
        sa.Column("attempt", INT, nullable=False),
        sa.Column("problem_hash", TEXT, nullable=False),
        sa.Column("candidate_hash", TEXT, nullable=False),
        sa.PrimaryKeyConstraint("run_id", "generation", "slot", "attempt", name="pk_proposals"),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name="fk_proposals_run_id"),
        _candidate_key("proposals"),
    )
    op.create_table(
        "verdicts",
        sa.Column("run_id", TEXT, nullable=False),
        sa.Column("candidate_hash", TEXT, nullable=False),
        sa.Column("stage", TEXT, nullable=False),
        sa.Column("problem_hash", TEXT, nullable=False),
        sa.Column("status", TEXT, nullable=False),
        sa.Column("message", TEXT, nullable=False),
        sa.Column("checks", sa.JSON(), nullable=False),
        sa.Column("environment", sa.JSON(), nullable=False),
        sa.Column("compilation", sa.JSON(), nullable=True),
        sa.Column("seconds", sa.JSON(), nullable=False),
        sa.Column("key", TEXT, nullable=False),
        sa.Column("created_at", TIME, nullable=False),
        sa.PrimaryKeyConstraint("run_id", "candidate_hash", "stage", name="pk_verdicts"),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name="fk_verdicts_run_id"),
        _candidate_key("verdicts"),
    )
    op.create_index("ix_verdicts_status", "verdicts", ["status"])
    op.create_index("ix_verdicts_candidate_hash", "verdicts", ["candidate_hash"])
    op.create_table(
        "measurements",
        sa.Column("run_id", TEXT, nullable=False),
        sa.Column("candidate_hash", TEXT, nullable=False),
        sa.Column("stage", TEXT, nullable=False),
        sa.Column("median_ms", sa.Double(), nullable=False),
        sa.Column("speedup_over_eager", sa.Double(), nullable=True),
        sa.Column("speedup_low", sa.Double(), nullable=True),
        sa.Column("speedup_high", sa.Double(), nullable=True),
        sa.Column("data", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("run_id", "candidate_hash", "stage", name="pk_measurements"),
        sa.ForeignKeyConstraint(
            ["run_id", "candidate_hash", "stage"],
            ["verdicts.run_id", "verdicts.candidate_hash", "verdicts.stage"],
            name="fk_measurements_run_id",
        ),
    )
    op.create_table(
        "prechecks",
        sa.Column("problem_hash", TEXT, nullable=False),
        sa.Column("candidate_hash", TEXT, nullable=False),
        sa.Column("passed", sa.Boolean(), nullable=False),
        sa.Column("checks", sa.JSON(), nullable=False),
        sa.Column("compilation", sa.JSON(), nullable=False),
        sa.Column("created_at", TIME, nullable=False),
        sa.PrimaryKeyConstraint("problem_hash", "candidate_hash", name="pk_prechecks"),
        _candidate_key("prechecks"),
    )
    for view in VIEWS:
        op.execute(view)


def _candidate_key(table: str) -> sa.ForeignKeyConstraint:
    return sa.ForeignKeyConstraint(
        ["problem_hash", "candidate_hash"],
        ["candidates.problem_hash", "candidates.hash"],
        name=f"fk_{table}_problem_hash",
    )


# One row a usable kernel that was measured again after its search: start here with sqlite3 or datasette.
CONFIRMED = """
CREATE VIEW confirmed_kernels AS
SELECT p.name AS problem, p.shape, r.device, c.backend, c.directive,
       m.speedup_over_eager, m.speedup_low, m.speedup_high, m.median_ms,
       c.hash AS candidate_hash, p.hash AS problem_hash, r.id AS run, v.created_at
FROM verdicts v
JOIN measurements m ON m.run_id = v.run_id AND m.candidate_hash = v.candidate_hash AND m.stage = v.stage
JOIN runs r ON r.id = v.run_id
JOIN problems p ON p.hash = v.problem_hash
JOIN candidates c ON c.problem_hash = v.problem_hash AND c.hash = v.candidate_hash
WHERE v.stage = 'confirm' AND v.status = 'correct'
"""

# One row a run: how many candidates had which fate.
SUMMARY = """
CREATE VIEW run_summary AS
SELECT r.id AS run, p.name AS problem, r.device, r.status, r.started_at, r.ended_at,
       (SELECT count(*) FROM proposals q WHERE q.run_id = r.id) AS proposed,
       (SELECT count(*) FROM verdicts v WHERE v.run_id = r.id AND v.stage = 'search') AS judged,
       (SELECT count(*) FROM verdicts v
        WHERE v.run_id = r.id AND v.stage = 'search' AND v.status = 'correct') AS correct,
       (SELECT max(m.speedup_over_eager) FROM measurements m
        WHERE m.run_id = r.id AND m.stage = 'confirm') AS speedup_over_eager
FROM runs r
JOIN problems p ON p.hash = r.problem_hash
"""

VIEWS = (CONFIRMED, SUMMARY)
