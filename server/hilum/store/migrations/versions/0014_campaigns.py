"""Campaigns: their series, images and rows of lists; readings and results name their campaign.

Revision: 0014, after 0013. New tables and two columns that are null; nothing is rewritten.
"""

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """To this revision."""
    op.create_table(
        "campaign",
        sa.Column("id", sa.Integer(), primary_key=True),
        sa.Column("name", sa.String(64), nullable=False),
        sa.Column("source", sa.String(64), nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("request", sa.JSON(), nullable=False),
        sa.Column("release", sa.String(80)),
        sa.Column("options", sa.JSON(), nullable=False),
        sa.Column("doubts", sa.JSON(), nullable=False),
        sa.Column("detail", sa.Text(), nullable=False, server_default=""),
        sa.Column("plan_cursor", sa.String(80), nullable=False, server_default=""),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.Column("changed_at", sa.Float(), nullable=False),
        sa.Column("started_at", sa.Float()),
        sa.Column("finished_at", sa.Float()),
        sa.Column("owner", sa.String(64)),
        sa.Column("owned_until", sa.Float()),
        sa.UniqueConstraint("name", name="uq_campaign_name"),
    )
    op.create_table(
        "campaign_series",
        sa.Column("id", sa.Integer(), primary_key=True),
        sa.Column("campaign_id", sa.Integer(), _of("campaign_series", "campaign"), nullable=False),
        sa.Column("study_instance_uid", sa.String(64), nullable=False),
        sa.Column("series_instance_uid", sa.String(64), nullable=False),
        sa.Column("day", sa.String(8), nullable=False),
        sa.Column("modality", sa.String(16), nullable=False),
        sa.Column("images", sa.Integer()),
        sa.Column("origin", sa.Text(), nullable=False, server_default=""),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False, server_default="0"),
        sa.Column("interruptions", sa.Integer(), nullable=False, server_default="0"),
        sa.Column("due_at", sa.Float(), nullable=False),
        sa.Column("reason", sa.String(40)),
        sa.Column("detail", sa.Text()),
        sa.Column("requested_at", sa.Float()),
        sa.Column("received_at", sa.Float()),
        sa.Column("finished_at", sa.Float()),
        sa.UniqueConstraint(
            "campaign_id",
            "study_instance_uid",
            "series_instance_uid",
            name="uq_campaign_series_campaign_study_series",
        ),
    )
    op.create_index(
        "ix_campaign_series_state", "campaign_series", ["campaign_id", "state", "due_at", "id"]
    )
    op.create_index("ix_campaign_series_day", "campaign_series", ["campaign_id", "day", "state"])
    op.create_table(
        "campaign_image",
        sa.Column("id", sa.Integer(), primary_key=True),
        sa.Column("campaign_id", sa.Integer(), _of("campaign_image", "campaign"), nullable=False),
        sa.Column(
            "series_id", sa.Integer(), _of("campaign_image", "campaign_series"), nullable=False
        ),
        sa.Column("sop_instance_uid", sa.String(64), nullable=False),
        sa.Column("sop_class_uid", sa.String(64), nullable=False),
        sa.Column("origin", sa.Text(), nullable=False, server_default=""),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("reason", sa.String(40)),
        sa.Column("detail", sa.Text()),
        sa.Column("is_fetched", sa.Boolean(), nullable=False, server_default=sa.text("false")),
        sa.UniqueConstraint(
            "series_id", "sop_instance_uid", "origin", name="uq_campaign_image_series_image"
        ),
    )
    op.create_index("ix_campaign_image_state", "campaign_image", ["campaign_id", "state", "reason"])
    for column in ("series_id", "sop_instance_uid"):
        op.create_index(f"ix_campaign_image_{column}", "campaign_image", [column])
    op.create_table(
        "campaign_row",
        sa.Column("campaign_id", sa.Integer(), _of("campaign_row", "campaign"), primary_key=True),
        sa.Column("number", sa.Integer(), primary_key=True, autoincrement=False),
        sa.Column("key", sa.String(40), nullable=False),
        sa.Column("outcome", sa.String(16), nullable=False),
        sa.Column("detail", sa.Text(), nullable=False, server_default=""),
        sa.Column("study_instance_uids", sa.JSON(), nullable=False),
    )
    op.add_column("reading", sa.Column("campaign_id", sa.Integer()))
    op.add_column("result", sa.Column("campaign_id", sa.Integer()))


def downgrade() -> None:
    """Back to the revision before."""
    op.drop_column("result", "campaign_id")
    op.drop_column("reading", "campaign_id")
    for table in ("campaign_row", "campaign_image", "campaign_series", "campaign"):
        op.drop_table(table)


def _of(table: str, other: str) -> sa.ForeignKey:
    column = "series_id" if other == "campaign_series" else "campaign_id"
    return sa.ForeignKey(f"{other}.id", name=f"fk_{table}_{column}")
