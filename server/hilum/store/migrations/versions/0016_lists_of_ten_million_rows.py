"""Indexes for lists of rare rows, and for rows that leave.

Revision: 0016, after 0015. Indexes alone. With ten million readings on PostgreSQL it takes minutes.
"""

import sqlalchemy as sa
from alembic import op

revision = "0016"
down_revision = "0015"
branch_labels = None
depends_on = None

_PLAIN = {
    "ix_association_outcome": ("association", ["outcome", "id"]),
    "ix_study_sender": ("study", ["calling_ae_title", "last_received_at", "id"]),
    "ix_audit_verb": ("audit", ["verb", "id"]),
    "ix_audit_actor": ("audit", ["actor", "id"]),
}
# With the condition, once for SQLite and once for PostgreSQL: SQLite has no boolean.
_PARTIAL = {
    "ix_study_open": (
        "study",
        ["state", "last_received_at", "id"],
        "state <> 'closed'",
        "state <> 'closed'",
    ),
    "ix_result_outcome": (
        "result",
        ["outcome"],
        "is_current IS 1 AND outcome <> 'analysed'",
        "is_current IS true AND outcome <> 'analysed'",
    ),
    "ix_result_release": ("result", ["release"], "is_current IS 1", "is_current IS true"),
    "ix_result_supersedes_id": (
        "result",
        ["supersedes_id"],
        "supersedes_id IS NOT NULL",
        "supersedes_id IS NOT NULL",
    ),
}


def upgrade() -> None:
    """To this revision."""
    for name, (table, columns) in _PLAIN.items():
        op.create_index(name, table, columns)
    for name, (table, columns, in_sqlite, in_postgresql) in _PARTIAL.items():
        op.create_index(
            name,
            table,
            columns,
            sqlite_where=sa.text(in_sqlite),
            postgresql_where=sa.text(in_postgresql),
        )


def downgrade() -> None:
    """Back to the revision before."""
    for name, index in {**_PLAIN, **_PARTIAL}.items():
        op.drop_index(name, str(index[0]))
