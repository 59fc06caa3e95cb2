"""Rejection notes of several senders about one image, and conflicts about a header.

Revision: 0010, after 0009. Notes that are there were taken from any sender, so they hold for all.
"""

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None

_BEFORE = "uq_rejection_sop_instance_uid_study_instance_uid"
_SINCE = "uq_rejection_image_calling_ae_title"


def upgrade() -> None:
    """To this revision."""
    with op.batch_alter_table("rejection", schema=None) as batch_op:
        batch_op.add_column(
            sa.Column(
                "holds_for_all", sa.Boolean(), server_default=sa.text("false"), nullable=False
            )
        )
        batch_op.drop_constraint(_BEFORE, type_="unique")
        batch_op.create_unique_constraint(
            _SINCE, ["sop_instance_uid", "study_instance_uid", "calling_ae_title"]
        )
    op.execute("UPDATE rejection SET holds_for_all = true")
    op.add_column(
        "conflict", sa.Column("kind", sa.String(length=16), server_default="pixels", nullable=False)
    )


def downgrade() -> None:
    """Back to the revision before: of several notes about an image the first one stays."""
    with op.batch_alter_table("conflict", schema=None) as batch_op:
        batch_op.drop_column("kind")
    op.execute(
        "DELETE FROM rejection WHERE id NOT IN (SELECT min(id) FROM rejection GROUP BY"
        " sop_instance_uid, study_instance_uid)"
    )
    with op.batch_alter_table("rejection", schema=None) as batch_op:
        batch_op.drop_constraint(_SINCE, type_="unique")
        batch_op.create_unique_constraint(_BEFORE, ["sop_instance_uid", "study_instance_uid"])
        batch_op.drop_column("holds_for_all")
    op.execute("DELETE FROM installation WHERE key = 'epoch'")
