"""Requests for storage commitment, and the reports that they are owed.

Revision: 0003, after 0002.
"""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """To this revision."""
    op.create_table(
        "commitment",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("transaction_uid", sa.String(length=64), nullable=False),
        sa.Column("calling_ae_title", sa.String(length=16), nullable=False),
        sa.Column("called_ae_title", sa.String(length=16), nullable=False),
        sa.Column("peer_address", sa.String(length=64), nullable=False),
        sa.Column("requested_at", sa.Float(), nullable=False),
        sa.Column("digest", sa.String(length=40), nullable=False),
        sa.Column("is_duplicate", sa.Boolean(), nullable=False),
        sa.Column("instances", sa.JSON(), nullable=False),
        sa.Column("committed", sa.Integer(), nullable=True),
        sa.Column("failed", sa.Integer(), nullable=True),
        sa.Column("failures", sa.JSON(), nullable=True),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("lane", sa.Integer(), nullable=False),
        sa.Column("due_at", sa.Float(), nullable=False),
        sa.Column("attempts", sa.Integer(), server_default="0", nullable=False),
        sa.Column("lapses", sa.Integer(), server_default="0", nullable=False),
        sa.Column("lease_token", sa.String(length=32), nullable=True),
        sa.Column("leased_until", sa.Float(), nullable=True),
        sa.Column("claimed_by", sa.String(length=64), nullable=True),
        sa.Column("reason", sa.String(length=40), nullable=True),
        sa.Column("detail", sa.Text(), nullable=True),
        sa.Column("finished_at", sa.Float(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_commitment")),
        sa.UniqueConstraint(
            "calling_ae_title",
            "transaction_uid",
            "digest",
            name=op.f("uq_commitment_calling_ae_title_transaction_uid_digest"),
        ),
    )
    with op.batch_alter_table("commitment", schema=None) as batch_op:
        batch_op.create_index(
            batch_op.f("ix_commitment_requested_at"), ["requested_at"], unique=False
        )
        batch_op.create_index(
            "ix_commitment_due",
            ["lane", "due_at", "id"],
            unique=False,
            sqlite_where=sa.text("state = 'due'"),
            postgresql_where=sa.text("state = 'due'"),
        )
        batch_op.create_index(
            "ix_commitment_leased",
            ["leased_until"],
            unique=False,
            sqlite_where=sa.text("state = 'leased'"),
            postgresql_where=sa.text("state = 'leased'"),
        )
        batch_op.create_index(
            "ix_commitment_stuck",
            ["finished_at"],
            unique=False,
            sqlite_where=sa.text("state IN ('failed', 'dead')"),
            postgresql_where=sa.text("state IN ('failed', 'dead')"),
        )


def downgrade() -> None:
    """Back to the revision before."""
    op.drop_table("commitment")
