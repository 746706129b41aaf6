"""Full-text search over what candidates set out to do and over their source.

SQLite only. The index holds copies of the text: rows of `candidates` have no lasting number that it could point to.
"""

from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

# Stemmed, so that `tiled` finds `tiling`; an underscore separates words, so that `rms` finds `rms_norm`.
TABLE = """
CREATE VIRTUAL TABLE candidate_text USING fts5(
    problem_hash UNINDEXED, hash UNINDEXED, directive, source, tokenize = 'porter unicode61'
)
"""
FILL = """
INSERT INTO candidate_text (problem_hash, hash, directive, source)
SELECT problem_hash, hash, directive, source FROM candidates
"""
# One trigger is enough: a candidate is never changed nor deleted.
FOLLOW = """
CREATE TRIGGER candidates_text AFTER INSERT ON candidates BEGIN
    INSERT INTO candidate_text (problem_hash, hash, directive, source)
    VALUES (new.problem_hash, new.hash, new.directive, new.source);
END
"""


def upgrade() -> None:
    """Add the index, fill it, and keep it filled."""
    if op.get_bind().dialect.name == "sqlite":
        for statement in (TABLE, FILL, FOLLOW):
            op.execute(statement)
