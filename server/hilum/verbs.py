"""Every verb of the audit: its name, and its DICOM event.

A route of the web or a command of the command line declares its verb with `performs`. One that
shows no study and changes nothing declares a `NoVerb` with a reason, so that a test can distinguish
it from a forgotten one. The events are those of PS3.15 A.5.3.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Literal, TypeVar

from hilum.domain import Code

_DCM: Final = "DCM"


def _dcm(value: str, meaning: str) -> Code:
    return Code(value, _DCM, meaning)


# PS3.16 CID 400, Audit Event ID.
APPLICATION_ACTIVITY: Final = _dcm("110100", "Application Activity")
AUDIT_LOG_USED: Final = _dcm("110101", "Audit Log Used")
INSTANCES_ACCESSED: Final = _dcm("110103", "DICOM Instances Accessed")
STUDY_DELETED: Final = _dcm("110105", "DICOM Study Deleted")
EXPORT: Final = _dcm("110106", "Export")
IMPORT: Final = _dcm("110107", "Import")
QUERY: Final = _dcm("110112", "Query")
SECURITY_ALERT: Final = _dcm("110113", "Security Alert")
USER_AUTHENTICATION: Final = _dcm("110114", "User Authentication")

# PS3.16 CID 401, Audit Event Type Code.
_START: Final = _dcm("110120", "Application Start")
_STOP: Final = _dcm("110121", "Application Stop")
_LOGIN: Final = _dcm("110122", "Login")
_LOGOUT: Final = _dcm("110123", "Logout")
_CONFIGURATION: Final = _dcm("110131", "Software Configuration")
_RESTRICTED: Final = _dcm("110132", "Use of Restricted Function")
_USER_CHANGED: Final = _dcm("110137", "User Security Attributes Changed")

Action = Literal["C", "R", "U", "D", "E"]
"""EventActionCode: create, read, update, delete, execute."""


class Verb(StrEnum):
    """An action. The list is closed; `docs/operate/audit.md` is generated from it."""

    START = "start"
    STOP = "stop"
    MIGRATE = "migrate"
    LOGIN = "login"
    LOGOUT = "logout"
    LOCK_OUT = "lock_out"
    CREATE_TOKEN = "create_token"  # noqa: S105 - the name of a verb
    REVOKE_TOKEN = "revoke_token"  # noqa: S105 - the same
    READ_AUDIT = "read_audit"
    LIST_STUDIES = "list_studies"
    FIND_STUDY = "find_study"
    LIST_CONFLICTS = "list_conflicts"
    LIST_NOTES = "list_notes"
    READ_STUDY = "read_study"
    READ_REPORT = "read_report"
    READ_IMAGE = "read_image"
    REQUEUE = "requeue"
    RESEND = "resend"
    COMPLETE = "complete"
    REANALYSE = "reanalyse"
    REJECT_IMAGE = "reject_image"
    KEEP_CONFLICT = "keep_conflict"
    REPLACE_CONFLICT = "replace_conflict"
    DISCARD_CONFLICT = "discard_conflict"
    ERASE = "erase"
    INGEST = "ingest"
    RECOVER = "recover"
    BACK_UP = "back_up"
    CONFIRM_CLOCK = "confirm_clock"
    FORGET_STUDIES = "forget_studies"
    PAUSE = "pause"
    RESUME = "resume"
    FORGET_DESTINATION = "forget_destination"
    FORGET_COMMITMENTS = "forget_commitments"
    PROBE = "probe"
    START_ROLLOUT = "start_rollout"
    PROMOTE = "promote"
    ROLL_BACK = "roll_back"
    STOP_ROLLOUT = "stop_rollout"
    PLAN_CAMPAIGN = "plan_campaign"
    RUN_CAMPAIGN = "run_campaign"
    CHANGE_CAMPAIGN = "change_campaign"
    COMPARE_RELEASES = "compare_releases"
    EXPORT = "export"


class VerbOutcome(StrEnum):
    """How a verb ended.

    `begun`: it takes several transactions, and this row was written before the first of them.
    """

    BEGUN = "begun"
    DONE = "done"
    REFUSED = "refused"
    FAILED = "failed"


class Thing(StrEnum):
    """The kind of object of a verb, beside a study of the ledger.

    A keyed digest names a patient, an accession number, and a study or image that is not in the
    ledger.
    """

    IMAGE = "image"
    DOCUMENT = "document"
    CONFLICT = "conflict"
    DESTINATION = "destination"
    ALIAS = "alias"
    RELEASE = "release"
    STAGE = "stage"
    SENDER = "sender"
    ROLE = "role"
    TOKEN = "token"  # noqa: S105 - a token's name
    PATIENT = "patient"
    ACCESSION = "accession"
    STUDY = "study"
    CAMPAIGN = "campaign"
    SOURCE = "source"
    FILE = "file"


@dataclass(frozen=True, slots=True)
class Meaning:
    """One verb in words and as a DICOM event.

    `is_look`: repeats are counted together. `is_long`: it takes several transactions.
    """

    words: str
    event: Code
    action: Action
    types: tuple[Code, ...] = ()
    is_look: bool = False
    is_long: bool = False


def _look(words: str, event: Code, action: Action = "R") -> Meaning:
    return Meaning(words, event, action, is_look=True)


def _long(words: str, event: Code, action: Action, *types: Code) -> Meaning:
    return Meaning(words, event, action, types, is_long=True)


def _alert(words: str, kind: Code) -> Meaning:
    return Meaning(words, SECURITY_ALERT, "E", (kind,))


MEANINGS: Final[Mapping[Verb, Meaning]] = {
    Verb.START: Meaning("A server started.", APPLICATION_ACTIVITY, "E", (_START,)),
    Verb.STOP: Meaning("A server stopped.", APPLICATION_ACTIVITY, "E", (_STOP,)),
    Verb.MIGRATE: _alert("The ledger was brought to another revision.", _CONFIGURATION),
    Verb.LOGIN: Meaning(
        "Somebody logged in, or showed a wrong token.", USER_AUTHENTICATION, "E", (_LOGIN,)
    ),
    Verb.LOGOUT: Meaning("Somebody logged out.", USER_AUTHENTICATION, "E", (_LOGOUT,)),
    Verb.LOCK_OUT: Meaning(
        "An address was locked out after wrong tokens.", USER_AUTHENTICATION, "E", (_LOGIN,)
    ),
    Verb.CREATE_TOKEN: _alert("A token was made.", _USER_CHANGED),
    Verb.REVOKE_TOKEN: _alert("A token was revoked.", _USER_CHANGED),
    Verb.READ_AUDIT: Meaning("The audit was read or exported.", AUDIT_LOG_USED, "R"),
    Verb.LIST_STUDIES: _look("Studies were listed.", QUERY, "E"),
    Verb.FIND_STUDY: Meaning(
        "Studies were looked for by Patient ID, Accession Number or Study Date.", QUERY, "E"
    ),
    Verb.LIST_CONFLICTS: _look("Conflicts were listed.", QUERY, "E"),
    Verb.LIST_NOTES: _look("Rejection notes without effect were listed.", QUERY, "E"),
    Verb.READ_STUDY: _look(
        "A study was read: its images, findings and deliveries.", INSTANCES_ACCESSED
    ),
    Verb.READ_REPORT: _look("A report or heat map was read.", INSTANCES_ACCESSED),
    Verb.READ_IMAGE: _look("A picture of an image was looked at.", INSTANCES_ACCESSED),
    Verb.REQUEUE: _alert("Ended items became due again.", _RESTRICTED),
    Verb.RESEND: _alert("Delivered documents were told to be sent again.", _RESTRICTED),
    Verb.COMPLETE: _alert("A study's quiet period was ended.", _RESTRICTED),
    Verb.REANALYSE: _long(
        "A release was told to read closed studies.", SECURITY_ALERT, "E", _RESTRICTED
    ),
    Verb.REJECT_IMAGE: Meaning("An image was taken out of results.", INSTANCES_ACCESSED, "D"),
    Verb.KEEP_CONFLICT: Meaning(
        "Other pixels were kept out of everything.", INSTANCES_ACCESSED, "U"
    ),
    Verb.REPLACE_CONFLICT: Meaning(
        "Other pixels were taken as the image.", INSTANCES_ACCESSED, "U"
    ),
    Verb.DISCARD_CONFLICT: Meaning("Other pixels were deleted.", INSTANCES_ACCESSED, "D"),
    Verb.ERASE: _long(
        "A patient or a study was erased, or it was counted what would be.", STUDY_DELETED, "D"
    ),
    Verb.INGEST: _long("Files were taken into the archive.", IMPORT, "C"),
    Verb.RECOVER: _long("Objects without a row were taken, or counted.", IMPORT, "C"),
    Verb.BACK_UP: Meaning("The installation was copied.", EXPORT, "R"),
    Verb.CONFIRM_CLOCK: _alert(
        "The clock was confirmed, so that deletion by age goes on from it.", _RESTRICTED
    ),
    Verb.FORGET_STUDIES: Meaning(
        "Rows of old studies left the ledger, after they were exported.", STUDY_DELETED, "D"
    ),
    Verb.PAUSE: _alert("Deliveries to a destination were stopped.", _RESTRICTED),
    Verb.RESUME: _alert("Deliveries to a destination were resumed.", _RESTRICTED),
    Verb.FORGET_DESTINATION: _alert("What waited for a destination was given up.", _RESTRICTED),
    Verb.FORGET_COMMITMENTS: _alert(
        "Dead reports of storage commitment were given up.", _RESTRICTED
    ),
    Verb.PROBE: _alert("A destination or a source was asked what it offers.", _RESTRICTED),
    Verb.START_ROLLOUT: _alert("A rollout was started.", _CONFIGURATION),
    Verb.PROMOTE: _alert("A rollout went one step further.", _CONFIGURATION),
    Verb.ROLL_BACK: _alert("A rollout went one step back.", _CONFIGURATION),
    Verb.STOP_ROLLOUT: _alert("A rollout was ended.", _CONFIGURATION),
    Verb.PLAN_CAMPAIGN: _long("Old studies were planned for a campaign.", QUERY, "E"),
    Verb.RUN_CAMPAIGN: _alert("A campaign was told to read old studies.", _RESTRICTED),
    Verb.COMPARE_RELEASES: Meaning(
        "Results of two releases were compared, study by study.", EXPORT, "R"
    ),
    Verb.CHANGE_CAMPAIGN: _alert(
        "A campaign was paused, resumed, cancelled, repeated in part, or forgotten.", _RESTRICTED
    ),
    Verb.EXPORT: _long("Numbers of studies were exported as a table.", EXPORT, "R"),
}


@dataclass(frozen=True, slots=True)
class NoVerb:
    """The declaration of a route or command that shows no study and changes nothing here."""

    why: str


OF_FILES: Final = NoVerb(
    "it is about files and releases of the person who runs it, and touches no study of the"
    " installation"
)

F = TypeVar("F", bound=Callable[..., object])
_DECLARED: Final = "hilum_verb"


def performs(verb: Verb | NoVerb) -> Callable[[F], F]:
    """Declare the verb of a route or a command."""

    def declare(function: F) -> F:
        setattr(function, _DECLARED, verb)
        return function

    return declare


def verb_of(function: object) -> Verb | NoVerb | None:
    """Return the declaration; None: there is none."""
    found: Verb | NoVerb | None = getattr(function, _DECLARED, None)
    return found
