"""The audit: verbs of persons and programs, in rows that are only added.

A rejection by hand names the person. Revision: 0007, after 0006. Triggers refuse every change of an
audit row, and its deletion unless retention has written down that rows from before a later moment
may go. A later revision that rebuilds the table on SQLite (`batch_alter_table`) has to make the
triggers again.
"""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None

_HORIZON = (
    "coalesce((SELECT CAST(value AS double precision) FROM installation WHERE key ="
    " 'audit_horizon'), 0)"
)
_SQLITE = (
    """CREATE TRIGGER audit_is_not_changed BEFORE UPDATE ON audit
    BEGIN SELECT RAISE(ABORT, 'the audit is append-only'); END""",
    f"""CREATE TRIGGER audit_is_not_deleted BEFORE DELETE ON audit WHEN OLD.at >= {_HORIZON}
    BEGIN SELECT RAISE(ABORT, 'the audit is append-only'); END""",
)
_POSTGRESQL = (
    f"""CREATE FUNCTION audit_is_append_only() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        IF TG_OP = 'DELETE' THEN
            IF OLD.at < {_HORIZON} THEN RETURN OLD; END IF;
        END IF;
        RAISE EXCEPTION 'the audit is append-only';
    END $$""",
    (
        "CREATE TRIGGER audit_is_not_changed BEFORE UPDATE OR DELETE ON audit FOR EACH ROW EXECUTE"
        " FUNCTION audit_is_append_only()"
    ),
    (
        "CREATE TRIGGER audit_is_not_emptied BEFORE TRUNCATE ON audit FOR EACH STATEMENT EXECUTE"
        " FUNCTION audit_is_append_only()"
    ),
)


def upgrade() -> None:
    """To this revision."""
    op.create_table(
        "audit",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("deed", sa.String(length=32), nullable=False),
        sa.Column("at", sa.Float(), nullable=False),
        sa.Column("actor", sa.String(length=80), nullable=False),
        sa.Column("channel", sa.String(length=8), nullable=False),
        sa.Column("address", sa.String(length=64), nullable=False),
        sa.Column("host", sa.String(length=64), nullable=False),
        sa.Column("verb", sa.String(length=24), nullable=False),
        sa.Column("study_id", sa.Integer(), nullable=True),
        sa.Column("image_id", sa.Integer(), nullable=True),
        sa.Column("thing", sa.String(length=16), nullable=True),
        sa.Column("name", sa.String(length=120), nullable=True),
        sa.Column("count", sa.Integer(), nullable=False),
        sa.Column("outcome", sa.String(length=8), nullable=False),
        sa.Column("detail", sa.String(length=200), nullable=True),
        sa.PrimaryKeyConstraint("id", name="pk_audit"),
        sqlite_autoincrement=True,
    )
    for column in ("deed", "at", "study_id"):
        op.create_index(f"ix_audit_{column}", "audit", [column])
    op.create_table(
        "audit_cursor",
        sa.Column("name", sa.String(length=16), nullable=False),
        sa.Column("last_id", sa.Integer(), nullable=False),
        sa.Column("owner", sa.String(length=64), nullable=True),
        sa.Column("owned_until", sa.Float(), nullable=True),
        sa.PrimaryKeyConstraint("name", name="pk_audit_cursor"),
    )
    op.add_column(
        "rejection",
        sa.Column("rejected_by", sa.String(length=80), server_default="", nullable=False),
    )
    for statement in _SQLITE if op.get_bind().dialect.name == "sqlite" else _POSTGRESQL:
        op.execute(statement)


def downgrade() -> None:
    """Back to the revision before."""
    op.drop_table("audit_cursor")
    op.drop_table("audit")  # and its triggers
    if op.get_bind().dialect.name == "postgresql":
        op.execute("DROP FUNCTION audit_is_append_only()")
    with op.batch_alter_table("rejection", schema=None) as batch_op:
        batch_op.drop_column("rejected_by")
    op.execute("DELETE FROM installation WHERE key = 'audit_horizon'")
