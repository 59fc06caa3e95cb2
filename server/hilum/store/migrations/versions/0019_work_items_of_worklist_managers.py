"""Work items that Hilum performs for worklist managers.

Revision: 0019, after 0018. New tables; nothing is rewritten.
"""

import sqlalchemy as sa
from alembic import op

revision = "0019"
down_revision = "0018"
branch_labels = None
depends_on = None

_OPEN = "finished_at IS NULL"


def upgrade() -> None:
    """To this revision."""
    op.create_table(
        "workitem",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("manager", sa.String(64), nullable=False),
        sa.Column("workitem_uid", sa.String(64), nullable=False),
        sa.Column("transaction_uid", sa.String(64), nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("study_instance_uid", sa.String(64), nullable=False),
        sa.Column("found_at", sa.Float(), nullable=False),
        sa.Column("claimed_at", sa.Float()),
        sa.Column("finished_at", sa.Float()),
        sa.Column("attempts", sa.Integer(), nullable=False, server_default="0"),
        sa.Column("reason", sa.String(40)),
        sa.Column("detail", sa.Text(), nullable=False, server_default=""),
        sa.PrimaryKeyConstraint("id", name="pk_workitem"),
        sa.UniqueConstraint("manager", "workitem_uid", name="uq_workitem_manager_workitem_uid"),
    )
    op.create_index("ix_workitem_study_instance_uid", "workitem", ["study_instance_uid"])
    op.create_index("ix_workitem_found_at", "workitem", ["found_at"])
    op.create_index(
        "ix_workitem_open",
        "workitem",
        ["manager", "id"],
        sqlite_where=sa.text(_OPEN),
        postgresql_where=sa.text(_OPEN),
    )
    op.create_table(
        "workitem_manager",
        sa.Column("name", sa.String(64), nullable=False),
        sa.Column("owner", sa.String(64)),
        sa.Column("owned_until", sa.Float()),
        sa.Column("problem", sa.Text(), nullable=False, server_default=""),
        sa.PrimaryKeyConstraint("name", name="pk_workitem_manager"),
    )


def downgrade() -> None:
    """Back to the revision before."""
    op.drop_table("workitem_manager")
    op.drop_table("workitem")
