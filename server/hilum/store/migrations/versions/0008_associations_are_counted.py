"""One row for many associations of a kind on which nothing was stored.

Revision: 0008, after 0007. A row that is there stands for one association. No row is rewritten.
"""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """To this revision."""
    op.add_column(
        "association", sa.Column("count", sa.Integer(), server_default="1", nullable=False)
    )


def downgrade() -> None:
    """Back to the revision before."""
    with op.batch_alter_table("association", schema=None) as batch_op:
        batch_op.drop_column("count")
