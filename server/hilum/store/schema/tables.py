"""The ledger's tables (SQLAlchemy Core), the same on SQLite and PostgreSQL.

Changes go through `migrations/`. Every table that is a stage's queue carries the lease columns.
Times are seconds since the epoch, UTC.
"""

from __future__ import annotations

from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    Column,
    Float,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    UniqueConstraint,
    text,
)

from hilum.store.schema.changes import NextChange

MAXIMUM_ROW_ID = 2**31 - 1  # PostgreSQL's integer

metadata = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "fk": "fk_%(table_name)s_%(column_0_name)s",
        "pk": "pk_%(table_name)s",
    }
)


def _partial_index(name: str, *columns: str, where: str) -> Index:
    """An index over the rows of this condition. SQLite has no boolean: `true` is 1 there."""
    in_sqlite = text(where.replace("IS true", "IS 1"))
    return Index(name, *columns, sqlite_where=in_sqlite, postgresql_where=text(where))


def _lease_columns() -> tuple[Column[object], ...]:
    """State, order and fenced lease of one row of work.

    `attempts` counts claims, `lapses` leases that ran out.
    """
    return (
        Column("state", String(16), nullable=False),
        Column("priority", Integer, nullable=False),
        Column("due_at", Float, nullable=False),
        Column("attempts", Integer, nullable=False, server_default="0"),
        Column("lapses", Integer, nullable=False, server_default="0"),
        Column("lease_token", String(32)),
        Column("leased_until", Float),
        Column("claimed_by", String(64)),
        Column("reason", String(40)),
        Column("detail", Text),
        Column("finished_at", Float),
    )


def _lease_indexes(name: str, *extra: str, condition: str = "") -> tuple[Index, ...]:
    """Partial indexes over open and stuck rows only.

    A ledger of ten million finished rows claims and counts as fast as an empty one.
    """
    due = f"state = 'due'{condition}"
    return (
        _partial_index(f"ix_{name}_due", *extra, "priority", "due_at", "id", where=due),
        _partial_index(f"ix_{name}_leased", "leased_until", where="state = 'leased'"),
        _partial_index(f"ix_{name}_stuck", "finished_at", where="state IN ('failed', 'dead')"),
    )


def _change_column() -> Column[int]:
    """The number of a row's last change, set by every statement that changes the row.

    Null: not since its insertion, or not since there is this order. An inserted result or delivery
    needs no number: the row that it follows from changes in the same transaction.
    """
    return Column("change", BigInteger, onupdate=NextChange())


def _change_index(name: str) -> Index:
    return _partial_index(f"ix_{name}_change", "change", "id", where="change IS NOT NULL")


installation = Table(
    "installation",
    metadata,
    Column("key", String(40), primary_key=True),
    Column("value", Text, nullable=False),
)

association = Table(
    "association",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("started_at", Float, nullable=False, index=True),
    Column("ended_at", Float, nullable=False),
    Column("peer_address", String(64), nullable=False),
    Column("calling_ae_title", String(16), nullable=False),
    Column("called_ae_title", String(16), nullable=False),
    Column("outcome", String(16), nullable=False),
    Column("reason", String(80)),
    Column("stored", Integer, nullable=False),
    Column("refused", Integer, nullable=False),
    Column("own_documents", Integer, nullable=False, server_default="0"),
    Column("advice", Text),
    Column("count", Integer, nullable=False, server_default="1"),
    Index("ix_association_outcome", "outcome", "id"),
)

instance = Table(
    "instance",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("sop_instance_uid", String(64), nullable=False, unique=True),
    Column("sop_class_uid", String(64), nullable=False),
    Column("study_instance_uid", String(64), nullable=False, index=True),
    Column("series_instance_uid", String(64), nullable=False),
    Column("transfer_syntax_uid", String(64), nullable=False),
    Column("path", String(200), nullable=False),
    Column("size_bytes", Integer, nullable=False),
    Column("digest", String(40), nullable=False),
    Column("pixel_digest", String(40), nullable=False),
    Column("received_at", Float, nullable=False),
    Column("calling_ae_title", String(16), nullable=False),
    Column("called_ae_title", String(16), nullable=False),
    Column("peer_address", String(64), nullable=False, server_default=""),
    Column("header", LargeBinary, nullable=False),
    Column("header_revision", Integer, nullable=False, server_default="1"),
    # Rejected by a note (IHE IOCM) or by a person: it takes no part in results. That its pixels
    # left the archive is another matter.
    Column("is_removed", Boolean, nullable=False, server_default=text("false")),
    Column("removal_reason", String(40)),
    Column("pixels_removed_at", Float),
    # Storage commitment has promised to keep it.
    Column("committed_at", Float),
    _partial_index("ix_instance_committed", "committed_at", where="committed_at IS NOT NULL"),
    # Retention looks at images that still have pixels only, oldest first.
    _partial_index("ix_instance_kept", "received_at", where="pixels_removed_at IS NULL"),
)

# Files that no row names any more, and since when they may be deleted. They are written in the
# transaction that takes their row's path away, so that a crash before the deletion leaves no
# unknown file.
expired_file = Table(
    "expired_file",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("path", String(200), nullable=False),
    Column("instance_id", Integer, index=True),
    Column("cause", String(16), nullable=False),
    Column("due_at", Float, nullable=False, index=True),
)

# Headers that a corrected one has replaced: the old header is known again when its file is sent
# once more.
former_header = Table(
    "former_header",
    metadata,
    Column("instance_id", Integer, ForeignKey("instance.id"), primary_key=True),
    Column("digest", String(40), primary_key=True),
    # Of the data set, whose file is deleted; null: replaced before this was written down.
    Column("sha256", String(64)),
)

# Images that take no part in results, also images that have not come yet: a note may be faster than
# the row of its image.
rejection = Table(
    "rejection",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("sop_instance_uid", String(64), nullable=False),
    Column("study_instance_uid", String(64), nullable=False),
    Column("reason", String(40), nullable=False),
    Column("note_uid", String(64)),
    Column("calling_ae_title", String(16), nullable=False),
    # The person that rejected it by hand.
    Column("rejected_by", String(80), nullable=False, server_default=""),
    Column("received_at", Float, nullable=False),
    # False: it holds for images that this Calling AE Title has sent. Each sender has its own row,
    # or the first row would take the place of the image's sender.
    Column("holds_for_all", Boolean, nullable=False, server_default=text("false")),
    UniqueConstraint(
        "sop_instance_uid",
        "study_instance_uid",
        "calling_ae_title",
        name="uq_rejection_image_calling_ae_title",
    ),
)

conflict = Table(
    "conflict",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("sop_instance_uid", String(64), nullable=False, index=True),
    Column("path", String(200), nullable=False),
    Column("size_bytes", Integer, nullable=False),
    Column("digest", String(40), nullable=False),
    Column("received_at", Float, nullable=False),
    Column("calling_ae_title", String(16), nullable=False),
    Column("kind", String(16), nullable=False, server_default="pixels"),
    Column("state", String(16), nullable=False),
    Column("resolved_at", Float),
    # Of the data set, once a person has it deleted; null: by an earlier version, or it is there.
    Column("sha256", String(64)),
    # False between the commit of a person's decision and the moves of the files that follow from
    # it.
    Column("is_settled", Boolean, nullable=False, server_default=text("true")),
    UniqueConstraint("sop_instance_uid", "digest"),
)

study = Table(
    "study",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("study_instance_uid", String(64), nullable=False, unique=True),
    Column("revision", Integer, nullable=False),
    Column("open_readings", Integer, nullable=False),
    Column("quiet_until", Float, nullable=False),
    Column("collecting_since", Float, nullable=False),
    Column("first_received_at", Float, nullable=False),
    Column("last_received_at", Float, nullable=False, index=True),
    Column("calling_ae_title", String(16), nullable=False),
    Column("called_ae_title", String(16), nullable=False),
    Column("peer_address", String(64), nullable=False, server_default=""),
    # What the rules of the settings decided at its first image. Null: there were none.
    Column("rule", String(64)),
    Column("rules_digest", String(16)),
    Column("rule_effect", JSON(none_as_null=True)),
    # The priority of its order by a modality worklist (`WorklistAnswer`). Null: none named one.
    Column("worklist", JSON(none_as_null=True)),
    *_lease_columns(),
    *_lease_indexes("study", condition=" AND open_readings = 0"),
    # As that of results, but each study has its place. 0: before there was this order.
    Column(
        "change",
        BigInteger,
        nullable=False,
        server_default="0",
        default=NextChange(),
        onupdate=NextChange(),
    ),
    Index("ix_study_change", "change", "id"),
    # The list of studies of one sender, also of one that sent its last study years ago.
    Index("ix_study_sender", "calling_ae_title", "last_received_at", "id"),
    # The last study that a rule matched.
    _partial_index("ix_study_rule", "rule", "id", where="rule IS NOT NULL"),
    # The list of studies in any other state: most are closed.
    _partial_index("ix_study_open", "state", "last_received_at", "id", where="state <> 'closed'"),
)

reading = Table(
    "reading",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("instance_id", Integer, ForeignKey("instance.id"), nullable=False),
    Column("study_instance_uid", String(64), nullable=False, index=True),
    Column("release", String(80), nullable=False),
    # A shadow's reading, never reported: no study waits for it (docs/models/rollouts.md).
    Column("is_shadow", Boolean, nullable=False, server_default=text("false")),
    *_lease_columns(),
    Column("logits", JSON),
    # (k, L): the output of each member of an ensemble; `logits` is their joint output.
    Column("member_logits", JSON),
    Column("cam", LargeBinary),
    Column("view", String(16)),
    Column("precision", String(16)),
    Column("preprocessing_version", String(40)),
    Column("timings", JSON),
    # The campaign that wants it; null: none. Campaigns are deleted without their readings.
    Column("campaign_id", Integer),
    UniqueConstraint("instance_id", "release"),
    *_lease_indexes("reading"),
)

result = Table(
    "result",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("study_instance_uid", String(64), nullable=False, index=True),
    Column("release", String(80), nullable=False),
    Column("source_digest", String(40), nullable=False),
    Column("revision", Integer, nullable=False),
    *_lease_columns(),
    Column("outcome", String(16), nullable=False),
    Column("outcome_reason", String(40)),
    Column("content", JSON, nullable=False),
    Column("identifiers", JSON, nullable=False),
    Column("created_at", Float, nullable=False, index=True),
    Column("supersedes_id", Integer, ForeignKey("result.id")),
    Column("is_current", Boolean, nullable=False),
    # That of its newest reading, which decides whether its documents are delivered.
    Column("campaign_id", Integer),
    UniqueConstraint("study_instance_uid", "release", "source_digest"),
    *_lease_indexes("result"),
    _change_column(),
    _change_index("result"),
    # Studies with an outcome or a release that few have: else all studies are walked.
    _partial_index(
        "ix_result_outcome", "outcome", where="is_current IS true AND outcome <> 'analysed'"
    ),
    _partial_index("ix_result_release", "release", where="is_current IS true"),
    # A result that leaves is looked for here.
    _partial_index("ix_result_supersedes_id", "supersedes_id", where="supersedes_id IS NOT NULL"),
)

document = Table(
    "document",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("result_id", Integer, ForeignKey("result.id"), nullable=False),
    Column("kind", String(16), nullable=False),
    Column("media_type", String(80), nullable=False),
    Column("sop_class_uid", String(64)),
    Column("sop_instance_uid", String(64), unique=True),
    Column("series_instance_uid", String(64)),
    Column("predecessor_uid", String(64)),
    Column("content", LargeBinary, nullable=False),
    Column("created_at", Float, nullable=False),
    UniqueConstraint("result_id", "kind"),
)

delivery = Table(
    "delivery",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("document_id", Integer, ForeignKey("document.id"), nullable=False),
    Column("destination", String(64), nullable=False),
    *_lease_columns(),
    # When it was first accepted, of one that was made due again since; null: see `finished_at`.
    Column("delivered_at", Float),
    # When a person last made it due again: requeued, released or sent again.
    Column("requeued_at", Float),
    # Of a delivered one: whether its destination has committed to keep it, and since when that is
    # so. Null: it is not asked. `commitment_due_at`: when it is asked, or no longer waited for.
    # `commitment_uid`: the Transaction UID of the last request.
    Column("commitment", String(16)),
    Column("commitment_at", Float),
    Column("commitment_due_at", Float),
    Column("commitment_uid", String(64)),
    Column("commitment_tries", Integer, nullable=False, server_default="0"),
    UniqueConstraint("document_id", "destination"),
    *_lease_indexes("delivery", "destination"),
    _partial_index("ix_delivery_withheld", "destination", "reason", where="state = 'withheld'"),
    _partial_index(
        "ix_delivery_commitment",
        "destination",
        "commitment_due_at",
        "id",
        where="commitment IN ('due', 'asked')",
    ),
    _change_column(),
    _change_index("delivery"),
)

destination = Table(
    "destination",
    metadata,
    Column("name", String(64), primary_key=True),
    Column("is_paused", Boolean, nullable=False, server_default=text("false")),
    Column("owner", String(64)),
    Column("owned_until", Float),
)

# One row an alias: a release of the settings that another one shall replace, or has replaced,
# without a restart.
rollout = Table(
    "rollout",
    metadata,
    Column("alias", String(80), primary_key=True),
    # The release that the settings named when it began: it holds only as long as they do.
    Column("configured", String(80), nullable=False),
    Column("serving", String(80), nullable=False),
    Column("previous", String(80)),
    Column("candidate", String(80)),
    Column("mode", String(16)),
    Column("fraction", Float),
    Column("state", String(16), nullable=False),
    Column("problem", Text),
    Column("changed_at", Float, nullable=False),
    Column("changed_by", String(64), nullable=False),
)

# The manifest of a release that reads, or shall: every process takes it from here, also after
# the file has changed (docs/models/rollouts.md).
release_manifest = Table(
    "release_manifest",
    metadata,
    Column("release", String(80), primary_key=True),
    Column("digest", String(64), nullable=False),
    Column("manifest", Text, nullable=False),
    # A candidate that was never proved has read nothing for a study: it may still become another.
    Column("is_proved", Boolean, nullable=False),
    Column("kept_at", Float, nullable=False),
)

rollout_event = Table(
    "rollout_event",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("alias", String(80), nullable=False, index=True),
    Column("verb", String(16), nullable=False),
    Column("state", String(16), nullable=False),
    Column("serving", String(80), nullable=False),
    Column("candidate", String(80)),
    Column("detail", Text),
    Column("changed_at", Float, nullable=False),
    Column("changed_by", String(64), nullable=False),
)

# The release that is reported for a study, from its first image to its last, despite any
# switch meanwhile; and its shadow.
assignment = Table(
    "assignment",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("study_instance_uid", String(64), nullable=False),
    Column("alias", String(80), nullable=False),
    Column("release", String(80), nullable=False),
    Column("shadow", String(80)),
    Column("assigned_at", Float, nullable=False),
    UniqueConstraint("study_instance_uid", "alias"),
)

# A study that a shadow reads, too: its own queue, so that it cannot touch reports.
comparison = Table(
    "comparison",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("study_instance_uid", String(64), nullable=False),
    Column("release", String(80), nullable=False),
    Column("shadow", String(80), nullable=False),
    *_lease_columns(),
    # For each finding that both know: [score, shadow's score, decision, shadow's decision].
    Column("content", JSON),
    UniqueConstraint("study_instance_uid", "shadow"),
    Index("ix_comparison_pair", "release", "shadow", "finished_at"),
    *_lease_indexes("comparison"),
)

# Requests for storage commitment. `instances`: [SOP Class UID, SOP Instance UID] each, until the
# report is answered; `digest` is theirs. An open request also has the replacement for an instance
# that was erased meanwhile.
commitment = Table(
    "commitment",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("transaction_uid", String(64), nullable=False),
    Column("calling_ae_title", String(16), nullable=False),
    Column("called_ae_title", String(16), nullable=False),
    Column("peer_address", String(64), nullable=False),
    Column("requested_at", Float, nullable=False, index=True),
    Column("digest", String(40), nullable=False),
    Column("is_duplicate", Boolean, nullable=False),
    Column("instances", JSON, nullable=False),
    Column("committed", Integer),
    Column("failed", Integer),
    # [SOP Instance UID, Failure Reason] of the first ones that are not kept.
    Column("failures", JSON),
    *_lease_columns(),
    UniqueConstraint("calling_ae_title", "transaction_uid", "digest"),
    *_lease_indexes("commitment"),
)

# Our own requests for storage commitment, written before they are sent: the report may come to any
# host. `deliveries`: ids of the rows that it asks for.
asked_commitment = Table(
    "asked_commitment",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("transaction_uid", String(64), nullable=False, unique=True),
    Column("destination", String(64), nullable=False),
    # Of the SCP: no other one may answer.
    Column("ae_title", String(16), nullable=False),
    Column("requested_at", Float, nullable=False, index=True),
    Column("deliveries", JSON, nullable=False),
    Column("answered_at", Float),
)

# Verbs of persons and programs. Rows are added and never changed; only retention deletes, up to a
# moment that it writes down first.
audit = Table(
    "audit",
    metadata,
    Column("id", Integer, primary_key=True),
    # The rows of one verb: `begun` and its end, where it takes several transactions.
    Column("deed", String(32), nullable=False, index=True),
    Column("at", Float, nullable=False, index=True),
    Column("actor", String(80), nullable=False),
    Column("channel", String(8), nullable=False),
    Column("address", String(64), nullable=False),
    Column("host", String(64), nullable=False),
    Column("verb", String(24), nullable=False),
    # Rows, and no UIDs: an erased study has others from then on, and no row of the audit changes.
    Column("study_id", Integer, index=True),
    Column("image_id", Integer),
    Column("thing", String(16)),
    Column("name", String(120)),
    Column("count", Integer, nullable=False),
    Column("outcome", String(8), nullable=False),
    Column("detail", String(200)),
    Index("ix_audit_verb", "verb", "id"),
    Index("ix_audit_actor", "actor", "id"),
    sqlite_autoincrement=True,  # an id is never given twice, or a cursor would pass a row by
)

# The position of each reader of the audit (the log, the syslog collector), and the process that
# reads for it now.
audit_cursor = Table(
    "audit_cursor",
    metadata,
    Column("name", String(16), primary_key=True),
    Column("last_id", Integer, nullable=False),
    Column("owner", String(64)),
    Column("owned_until", Float),
)

# Named tokens for REST and pages. A revoked token keeps its row: its name stands in the audit.
access_token = Table(
    "access_token",
    metadata,
    Column("name", String(32), primary_key=True),
    Column("scope", String(16), nullable=False),
    Column("digest", String(64), nullable=False, unique=True),
    Column("created_at", Float, nullable=False),
    Column("expires_at", Float),
    Column("revoked_at", Float),
    Column("last_used_at", Float),
)

# Campaigns (docs/archive/campaigns.md). `request`, `options`, `doubts`: see `domain.campaigns`.
# `owner`: the process that fetches for it, as of destinations.
campaign = Table(
    "campaign",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("name", String(64), nullable=False, unique=True),
    Column("source", String(64), nullable=False),
    Column("state", String(16), nullable=False),
    Column("request", JSON, nullable=False),
    Column("release", String(80)),
    Column("options", JSON, nullable=False),
    Column("doubts", JSON, nullable=False),
    Column("detail", Text, nullable=False, server_default=""),
    Column("plan_cursor", String(80), nullable=False, server_default=""),
    Column("created_at", Float, nullable=False),
    Column("changed_at", Float, nullable=False),
    Column("started_at", Float),
    Column("finished_at", Float),
    Column("owner", String(64)),
    Column("owned_until", Float),
)

campaign_series = Table(
    "campaign_series",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("campaign_id", Integer, ForeignKey("campaign.id"), nullable=False),
    Column("study_instance_uid", String(64), nullable=False),
    Column("series_instance_uid", String(64), nullable=False),
    Column("day", String(8), nullable=False),
    Column("modality", String(16), nullable=False),
    Column("images", Integer),
    Column("origin", Text, nullable=False, server_default=""),
    Column("state", String(16), nullable=False),
    Column("attempts", Integer, nullable=False, server_default="0"),
    Column("interruptions", Integer, nullable=False, server_default="0"),
    Column("due_at", Float, nullable=False),
    Column("reason", String(40)),
    Column("detail", Text),
    Column("requested_at", Float),
    Column("received_at", Float),
    Column("finished_at", Float),
    UniqueConstraint(
        "campaign_id",
        "study_instance_uid",
        "series_instance_uid",
        name="uq_campaign_series_campaign_study_series",
    ),
    Index("ix_campaign_series_state", "campaign_id", "state", "due_at", "id"),
    Index("ix_campaign_series_day", "campaign_id", "day", "state"),
)

# `state`: `domain.CampaignImageState`. The image's own row need not exist.
campaign_image = Table(
    "campaign_image",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("campaign_id", Integer, ForeignKey("campaign.id"), nullable=False),
    Column("series_id", Integer, ForeignKey("campaign_series.id"), nullable=False, index=True),
    Column("sop_instance_uid", String(64), nullable=False, index=True),
    Column("sop_class_uid", String(64), nullable=False),
    Column("origin", Text, nullable=False, server_default=""),
    Column("state", String(16), nullable=False),
    Column("reason", String(40)),
    Column("detail", Text),
    # It came for this campaign, so its pixels leave when it is read.
    Column("is_fetched", Boolean, nullable=False, server_default=text("false")),
    UniqueConstraint(
        "series_id", "sop_instance_uid", "origin", name="uq_campaign_image_series_image"
    ),
    Index("ix_campaign_image_state", "campaign_id", "state", "reason"),
)

# The outcome of each row of a list. Its identifiers stay in the list: `key` is a keyed digest.
campaign_row = Table(
    "campaign_row",
    metadata,
    Column("campaign_id", Integer, ForeignKey("campaign.id"), primary_key=True),
    Column("number", Integer, primary_key=True),
    Column("key", String(40), nullable=False),
    Column("outcome", String(16), nullable=False),
    Column("detail", Text, nullable=False, server_default=""),
    Column("study_instance_uids", JSON, nullable=False),
)

# Work items of worklist managers (docs/operate/workitems.md). The Transaction UID is there before
# the claim, so that any process can go on after a crash.
workitem = Table(
    "workitem",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("manager", String(64), nullable=False),
    Column("workitem_uid", String(64), nullable=False),
    Column("transaction_uid", String(64), nullable=False),
    Column("state", String(16), nullable=False),
    Column("study_instance_uid", String(64), nullable=False, index=True),
    Column("found_at", Float, nullable=False, index=True),
    Column("claimed_at", Float),
    Column("finished_at", Float),
    Column("attempts", Integer, nullable=False, server_default="0"),
    Column("reason", String(40)),
    Column("detail", Text, nullable=False, server_default=""),
    UniqueConstraint("manager", "workitem_uid"),
    _partial_index("ix_workitem_open", "manager", "id", where="finished_at IS NULL"),
)

# `owner`: the process that asks a manager, as of destinations. `problem`: why it cannot.
workitem_manager = Table(
    "workitem_manager",
    metadata,
    Column("name", String(64), primary_key=True),
    Column("owner", String(64)),
    Column("owned_until", Float),
    Column("problem", Text, nullable=False, server_default=""),
)

process = Table(
    "process",
    metadata,
    Column("name", String(64), primary_key=True),
    Column("role", String(16), nullable=False),
    Column("host", String(64), nullable=False),
    Column("pid", Integer, nullable=False),
    Column("started_at", Float, nullable=False),
    Column("beat_at", Float, nullable=False),
    Column("is_ready", Boolean, nullable=False),
    Column("detail", Text),
    # Of a supervisor: JSON of `HostFacts`.
    Column("facts", Text),
)

WORK_TABLES = {
    table.name: table for table in (reading, study, comparison, result, delivery, commitment)
}
