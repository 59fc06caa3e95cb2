"""Storage commitment of delivered documents: the state of each, and our requests.

Revision: 0020, after 0019. Deliveries from before are not asked for.
"""

import sqlalchemy as sa
from alembic import op

revision = "0020"
down_revision = "0019"
branch_labels = None
depends_on = None

_OPEN = "commitment IN ('due', 'asked')"


def upgrade() -> None:
    """To this revision."""
    op.add_column("delivery", sa.Column("commitment", sa.String(16)))
    op.add_column("delivery", sa.Column("commitment_at", sa.Float()))
    op.add_column("delivery", sa.Column("commitment_due_at", sa.Float()))
    op.add_column("delivery", sa.Column("commitment_uid", sa.String(64)))
    op.add_column(
        "delivery",
        sa.Column("commitment_tries", sa.Integer(), server_default="0", nullable=False),
    )
    op.create_index(
        "ix_delivery_commitment",
        "delivery",
        ["destination", "commitment_due_at", "id"],
        sqlite_where=sa.text(_OPEN),
        postgresql_where=sa.text(_OPEN),
    )
    op.create_table(
        "asked_commitment",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("transaction_uid", sa.String(64), nullable=False),
        sa.Column("destination", sa.String(64), nullable=False),
        sa.Column("ae_title", sa.String(16), nullable=False),
        sa.Column("requested_at", sa.Float(), nullable=False),
        sa.Column("deliveries", sa.JSON(), nullable=False),
        sa.Column("answered_at", sa.Float()),
        sa.PrimaryKeyConstraint("id", name="pk_asked_commitment"),
        sa.UniqueConstraint("transaction_uid", name="uq_asked_commitment_transaction_uid"),
    )
    op.create_index("ix_asked_commitment_requested_at", "asked_commitment", ["requested_at"])


def downgrade() -> None:
    """Back to the revision before."""
    op.drop_table("asked_commitment")
    op.drop_index("ix_delivery_commitment", "delivery")
    for name in ("tries", "uid", "due_at", "at"):
        op.drop_column("delivery", f"commitment_{name}")
    op.drop_column("delivery", "commitment")
