"""Named tokens for REST and pages, with a scope and an end.

Revision: 0009, after 0008. One new table; no row is rewritten.
"""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """To this revision."""
    op.create_table(
        "access_token",
        sa.Column("name", sa.String(32), nullable=False),
        sa.Column("scope", sa.String(16), nullable=False),
        sa.Column("digest", sa.String(64), nullable=False),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.Column("expires_at", sa.Float(), nullable=True),
        sa.Column("revoked_at", sa.Float(), nullable=True),
        sa.Column("last_used_at", sa.Float(), nullable=True),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_access_token")),
        sa.UniqueConstraint("digest", name=op.f("uq_access_token_digest")),
    )


def downgrade() -> None:
    """Back to the revision before."""
    op.drop_table("access_token")
