"""Withheld deliveries have their own state; a delivery has the time of its last requeue.

Revision: 0012, after 0011. Until now a withheld delivery was cancelled for one of two reasons.
"""

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None

_IS_WITHHELD = "reason IN ('untrained_weights', 'sender_unknown')"
# A superseded result sends nothing any more, so none of its deliveries is withheld.
_OF_CURRENT = (
    "document_id IN (SELECT document.id FROM document JOIN result ON result.id = document.result_id"
    " WHERE result.is_current = true)"
)


def upgrade() -> None:
    """To this revision."""
    for column in ("delivered_at", "requeued_at"):
        op.add_column("delivery", sa.Column(column, sa.Float(), nullable=True))
    withheld = sa.text("state = 'withheld'")
    op.create_index(
        "ix_delivery_withheld",
        "delivery",
        ["destination", "reason"],
        sqlite_where=withheld,
        postgresql_where=withheld,
    )
    op.execute(
        # Constants.
        f"UPDATE delivery SET state = 'withheld' WHERE state = 'cancelled' AND {_IS_WITHHELD} AND"  # noqa: S608
        f" {_OF_CURRENT}"
    )


def downgrade() -> None:
    """Back to the revision before."""
    op.execute("UPDATE delivery SET state = 'cancelled' WHERE state = 'withheld'")
    op.drop_index("ix_delivery_withheld", "delivery")
    with op.batch_alter_table("delivery", schema=None) as batch_op:
        for column in ("delivered_at", "requeued_at"):
            batch_op.drop_column(column)
