"""The manifest of each release that reads, as it was read.

Revision: 0005, after 0004.
"""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """To this revision."""
    op.create_table(
        "release_manifest",
        sa.Column("release", sa.String(length=80), nullable=False),
        sa.Column("digest", sa.String(length=64), nullable=False),
        sa.Column("manifest", sa.Text(), nullable=False),
        sa.Column("is_proved", sa.Boolean(), nullable=False),
        sa.Column("kept_at", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("release", name=op.f("pk_release_manifest")),
    )


def downgrade() -> None:
    """Back to the revision before."""
    op.drop_table("release_manifest")
