"""Releases are replaced while the server runs; ensembles keep the output of each member.

Revision: 0002, after 0001.
"""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """To this revision."""
    op.create_table(
        "assignment",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("study_instance_uid", sa.String(length=64), nullable=False),
        sa.Column("alias", sa.String(length=80), nullable=False),
        sa.Column("release", sa.String(length=80), nullable=False),
        sa.Column("shadow", sa.String(length=80), nullable=True),
        sa.Column("assigned_at", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_assignment")),
        sa.UniqueConstraint(
            "study_instance_uid", "alias", name=op.f("uq_assignment_study_instance_uid_alias")
        ),
    )
    op.create_table(
        "comparison",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("study_instance_uid", sa.String(length=64), nullable=False),
        sa.Column("release", sa.String(length=80), nullable=False),
        sa.Column("shadow", sa.String(length=80), nullable=False),
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
        sa.Column("content", sa.JSON(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_comparison")),
        sa.UniqueConstraint(
            "study_instance_uid", "shadow", name=op.f("uq_comparison_study_instance_uid_shadow")
        ),
    )
    with op.batch_alter_table("comparison", schema=None) as batch_op:
        batch_op.create_index(
            "ix_comparison_due",
            ["lane", "due_at", "id"],
            unique=False,
            sqlite_where=sa.text("state = 'due'"),
            postgresql_where=sa.text("state = 'due'"),
        )
        batch_op.create_index(
            "ix_comparison_leased",
            ["leased_until"],
            unique=False,
            sqlite_where=sa.text("state = 'leased'"),
            postgresql_where=sa.text("state = 'leased'"),
        )
        batch_op.create_index(
            "ix_comparison_pair", ["release", "shadow", "finished_at"], unique=False
        )
        batch_op.create_index(
            "ix_comparison_stuck",
            ["finished_at"],
            unique=False,
            sqlite_where=sa.text("state IN ('failed', 'dead')"),
            postgresql_where=sa.text("state IN ('failed', 'dead')"),
        )

    op.create_table(
        "rollout",
        sa.Column("alias", sa.String(length=80), nullable=False),
        sa.Column("configured", sa.String(length=80), nullable=False),
        sa.Column("serving", sa.String(length=80), nullable=False),
        sa.Column("previous", sa.String(length=80), nullable=True),
        sa.Column("candidate", sa.String(length=80), nullable=True),
        sa.Column("mode", sa.String(length=16), nullable=True),
        sa.Column("fraction", sa.Float(), nullable=True),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("problem", sa.Text(), nullable=True),
        sa.Column("changed_at", sa.Float(), nullable=False),
        sa.Column("changed_by", sa.String(length=64), nullable=False),
        sa.PrimaryKeyConstraint("alias", name=op.f("pk_rollout")),
    )
    op.create_table(
        "rollout_event",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("alias", sa.String(length=80), nullable=False),
        sa.Column("verb", sa.String(length=16), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("serving", sa.String(length=80), nullable=False),
        sa.Column("candidate", sa.String(length=80), nullable=True),
        sa.Column("detail", sa.Text(), nullable=True),
        sa.Column("changed_at", sa.Float(), nullable=False),
        sa.Column("changed_by", sa.String(length=64), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_rollout_event")),
    )
    with op.batch_alter_table("rollout_event", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_rollout_event_alias"), ["alias"], unique=False)

    with op.batch_alter_table("reading", schema=None) as batch_op:
        batch_op.add_column(
            sa.Column("is_shadow", sa.Boolean(), server_default=sa.text("false"), nullable=False)
        )
        batch_op.add_column(sa.Column("member_logits", sa.JSON(), nullable=True))


def downgrade() -> None:
    """Back to the revision before."""
    with op.batch_alter_table("reading", schema=None) as batch_op:
        batch_op.drop_column("member_logits")
        batch_op.drop_column("is_shadow")

    with op.batch_alter_table("rollout_event", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_rollout_event_alias"))

    op.drop_table("rollout_event")
    op.drop_table("rollout")
    with op.batch_alter_table("comparison", schema=None) as batch_op:
        batch_op.drop_index(
            "ix_comparison_stuck",
            sqlite_where=sa.text("state IN ('failed', 'dead')"),
            postgresql_where=sa.text("state IN ('failed', 'dead')"),
        )
        batch_op.drop_index("ix_comparison_pair")
        batch_op.drop_index(
            "ix_comparison_leased",
            sqlite_where=sa.text("state = 'leased'"),
            postgresql_where=sa.text("state = 'leased'"),
        )
        batch_op.drop_index(
            "ix_comparison_due",
            sqlite_where=sa.text("state = 'due'"),
            postgresql_where=sa.text("state = 'due'"),
        )

    op.drop_table("comparison")
    op.drop_table("assignment")
