"""A supervisor's heartbeat carries facts of its host: version, clock, settings, archive.

Revision: 0015, after 0014. One column that is null; nothing is rewritten.
"""

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """To this revision."""
    op.add_column("process", sa.Column("facts", sa.Text(), nullable=True))


def downgrade() -> None:
    """Back to the revision before."""
    with op.batch_alter_table("process", schema=None) as batch_op:
        batch_op.drop_column("facts")
