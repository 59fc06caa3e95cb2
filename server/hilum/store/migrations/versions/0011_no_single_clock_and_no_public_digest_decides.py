"""Promised images are marked; data sets that were put aside are known by their SHA-256.

Revision: 0011, after 0010. Of earlier promises of storage commitment only the sender is known: all
images that it had sent until then count as promised.
"""

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None

_ASKERS = sa.text(
    "SELECT calling_ae_title, max(finished_at) AS moment FROM commitment WHERE committed > 0 AND"
    " finished_at IS NOT NULL GROUP BY calling_ae_title"
)
_EARLIER_PROMISES = sa.text(
    "UPDATE instance SET committed_at = :moment WHERE calling_ae_title = :title AND received_at <="
    " :moment AND pixels_removed_at IS NULL"
)


def upgrade() -> None:
    """To this revision."""
    op.add_column("instance", sa.Column("committed_at", sa.Float(), nullable=True))
    promised = sa.text("committed_at IS NOT NULL")
    op.create_index(
        "ix_instance_committed",
        "instance",
        ["committed_at"],
        sqlite_where=promised,
        postgresql_where=promised,
    )
    for name in ("conflict", "former_header"):
        op.add_column(name, sa.Column("sha256", sa.String(length=64), nullable=True))
    connection = op.get_bind()
    for asker in connection.execute(_ASKERS).all():
        connection.execute(
            _EARLIER_PROMISES, {"title": asker.calling_ae_title, "moment": asker.moment}
        )


def downgrade() -> None:
    """Back to the revision before."""
    op.drop_index("ix_instance_committed", "instance")
    for name, column in (
        ("instance", "committed_at"),
        ("conflict", "sha256"),
        ("former_header", "sha256"),
    ):
        with op.batch_alter_table(name, schema=None) as batch_op:
            batch_op.drop_column(column)
    # The seed stays: rows have digests that were made with it.
    op.execute("DELETE FROM installation WHERE key IN ('known_time', 'retention_hour')")
