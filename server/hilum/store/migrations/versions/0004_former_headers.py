"""Headers that a corrected one has replaced.

Revision: 0004, after 0003.
"""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """To this revision."""
    op.create_table(
        "former_header",
        sa.Column("instance_id", sa.Integer(), nullable=False),
        sa.Column("digest", sa.String(length=40), nullable=False),
        sa.ForeignKeyConstraint(
            ["instance_id"], ["instance.id"], name=op.f("fk_former_header_instance_id")
        ),
        sa.PrimaryKeyConstraint("instance_id", "digest", name=op.f("pk_former_header")),
    )


def downgrade() -> None:
    """Back to the revision before."""
    op.drop_table("former_header")
