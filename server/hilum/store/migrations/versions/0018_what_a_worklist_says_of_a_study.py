"""The priority of a study's order, as a modality worklist names it.

Revision: 0018, after 0017. Studies from before have no answer.
"""

import sqlalchemy as sa
from alembic import op

revision = "0018"
down_revision = "0017"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """To this revision."""
    op.add_column("study", sa.Column("worklist", sa.JSON(none_as_null=True)))


def downgrade() -> None:
    """Back to the revision before."""
    op.drop_column("study", "worklist")
