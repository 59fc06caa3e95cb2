"""Studies, results and deliveries can be followed in the order of their changes.

Revision: 0006, after 0005. A study that is there has the number 0: it comes before all that changes
from now on. No row is rewritten.
"""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """To this revision."""
    op.add_column("study", sa.Column("change", sa.BigInteger(), server_default="0", nullable=False))
    op.create_index("ix_study_change", "study", ["change", "id"])
    has_changed = sa.text("change IS NOT NULL")
    for name in ("result", "delivery"):
        op.add_column(name, sa.Column("change", sa.BigInteger(), nullable=True))
        op.create_index(
            f"ix_{name}_change",
            name,
            ["change", "id"],
            sqlite_where=has_changed,
            postgresql_where=has_changed,
        )


def downgrade() -> None:
    """Back to the revision before."""
    for name in ("study", "result", "delivery"):
        op.drop_index(f"ix_{name}_change", name)
        with op.batch_alter_table(name, schema=None) as batch_op:
            batch_op.drop_column("change")
    op.execute("DELETE FROM installation WHERE key IN ('changes_base', 'changes_of')")
