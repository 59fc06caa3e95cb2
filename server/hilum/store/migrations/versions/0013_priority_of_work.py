"""The column that orders the work of a stage is called `priority`.

Revision: 0013, after 0012. Renaming a column changes the catalogue alone, and the indexes follow.
"""

from alembic import op

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None

_QUEUES = ("study", "reading", "result", "delivery", "comparison", "commitment")


def upgrade() -> None:
    """To this revision."""
    _rename("lane", "priority")


def downgrade() -> None:
    """Back to the revision before."""
    _rename("priority", "lane")


def _rename(old: str, new: str) -> None:
    for queue in _QUEUES:
        op.alter_column(queue, old, new_column_name=new)
