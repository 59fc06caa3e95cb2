"""The decision of the rules about a study, with the name of the rule.

Revision: 0017, after 0016. Studies from before keep no decision.
"""

import sqlalchemy as sa
from alembic import op

revision = "0017"
down_revision = "0016"
branch_labels = None
depends_on = None

_CONDITION = "rule IS NOT NULL"


def upgrade() -> None:
    """To this revision."""
    op.add_column("study", sa.Column("rule", sa.String(64)))
    op.add_column("study", sa.Column("rules_digest", sa.String(16)))
    op.add_column("study", sa.Column("rule_effect", sa.JSON(none_as_null=True)))
    op.create_index(
        "ix_study_rule",
        "study",
        ["rule", "id"],
        sqlite_where=sa.text(_CONDITION),
        postgresql_where=sa.text(_CONDITION),
    )


def downgrade() -> None:
    """Back to the revision before."""
    op.drop_index("ix_study_rule", "study")
    for name in ("rule_effect", "rules_digest", "rule"):
        op.drop_column("study", name)
