"""The common parts of all commands: the applications, the settings option, and messages."""

from __future__ import annotations

import errno
import functools
import os
import pwd
import sqlite3
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from contextvars import ContextVar
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, ParamSpec

import typer
from typer.core import TyperGroup

from hilum import __version__
from hilum.domain import Actor, Channel
from hilum.errors import ConfigurationError, Retry
from hilum.settings import Settings, load
from hilum.settings.renamed import advice_for_option
from hilum.verbs import MEANINGS, Thing, Verb, VerbOutcome
from hilum.verbs import performs as declare_verb

if TYPE_CHECKING:
    from hilum.store.audit.log import Deed


class _Commands(TyperGroup):
    """All commands. An option of an earlier version is answered with its new name."""

    def __init__(self, **given: Any) -> None:  # noqa: ANN401 - typer's
        super().__init__(**given)
        _join_lines(self)

    def parse_args(
        self,
        ctx: Any,  # noqa: ANN401 - the type is private to typer
        args: list[str],
    ) -> list[str]:
        """Parse as usual. Exit status 2 for a former option."""
        if problems := [said for word in args if (said := advice_for_option(word))]:
            raise ended(2, *problems)
        return super().parse_args(ctx, args)


def _join_lines(command: Any) -> None:  # noqa: ANN401 - the type is private to typer
    """Make each paragraph of the help one line, for this command and those below it.

    Typer keeps line ends of the second paragraph and later ones, which a terminal breaks again.
    """
    paragraphs = (command.help or "").split("\n\n")
    command.help = "\n\n".join(" ".join(item.split()) for item in paragraphs)
    for item in getattr(command, "commands", {}).values():
        _join_lines(item)


app = typer.Typer(
    name="hilum",
    cls=_Commands,
    help=(
        "Chest radiographs in by DICOM, AI results out as Structured Reports and JSON. For research"
        " use only."
    ),
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
models_app = typer.Typer(
    help="Releases: show, check, and build them for Triton.", no_args_is_help=True
)
app.add_typer(models_app, name="models")
destinations_app = typer.Typer(help="Receivers of reports.", no_args_is_help=True)
app.add_typer(destinations_app, name="destinations")
commitments_app = typer.Typer(
    help="Reports of storage commitment that are due to a requester.", no_args_is_help=True
)
app.add_typer(commitments_app, name="commitments")
conflicts_app = typer.Typer(
    help=(
        "Other pixels under a known SOP Instance UID: the objects in quarantine, and"
        " decisions about them."
    ),
    no_args_is_help=True,
)
app.add_typer(conflicts_app, name="conflicts")
rollout_app = typer.Typer(
    help=(
        "From one release to another while the server runs: shadow, canary, switch, and the way"
        " back."
    ),
    no_args_is_help=True,
)
app.add_typer(rollout_app, name="rollout")
campaign_app = typer.Typer(
    help="A release reads a fixed set of old studies, from a PACS, from files or the archive.",
    no_args_is_help=True,
)
app.add_typer(campaign_app, name="campaign")
sources_app = typer.Typer(help="Sources of old studies.", no_args_is_help=True)
app.add_typer(sources_app, name="sources")
studies_app = typer.Typer(help="Single studies.", no_args_is_help=True)
app.add_typer(studies_app, name="studies")
retention_app = typer.Typer(
    help="Deletion from the archive, and the reasons for its delay.", no_args_is_help=True
)
app.add_typer(retention_app, name="retention")
token_app = typer.Typer(help="Tokens for REST and the pages.", no_args_is_help=True)
app.add_typer(token_app, name="token")
ledger_app = typer.Typer(help="The ledger that all hosts share.", no_args_is_help=True)
app.add_typer(ledger_app, name="ledger")
rules_app = typer.Typer(
    help="Rules about studies: show, explain, test, replay.", no_args_is_help=True
)
app.add_typer(rules_app, name="rules")
worklist_app = typer.Typer(
    help="The modality worklist that names priorities.", no_args_is_help=True
)
app.add_typer(worklist_app, name="worklist")
workitems_app = typer.Typer(
    help="Work items that Hilum performs for a worklist manager.", no_args_is_help=True
)
app.add_typer(workitems_app, name="workitems")
images_app = typer.Typer(help="Single images.", no_args_is_help=True)
app.add_typer(images_app, name="images")

Config = Annotated[
    Path | None,
    typer.Option(
        "--config",
        "-c",
        help="Settings file (TOML). Default: $HILUM_CONFIG, ./hilum.toml, /etc/hilum/hilum.toml.",
    ),
]


P = ParamSpec("P")
_verb: ContextVar[Verb] = ContextVar("verb")
_WRONG_PATH: Final = (
    PermissionError,
    FileExistsError,
    FileNotFoundError,
    IsADirectoryError,
    NotADirectoryError,
)
_FULL: Final = (errno.ENOSPC, errno.EDQUOT)


@contextmanager
def settings_explained() -> Iterator[None]:
    """Every problem of the settings on its own line, or that the ledger is damaged; exit status 2.

    Alone for a server: all else belongs into its log, with a traceback.
    """
    try:
        yield
    except ConfigurationError as error:
        raise ended(2, *error.problems) from error
    except _of_file() as error:
        # As in `_of_file`.
        from hilum.store.database.engines import (  # noqa: PLC0415
            DAMAGED,
            RESTORE,
            is_damaged,
        )

        if not is_damaged(error):
            raise
        raise ended(2, f"ledger: {DAMAGED}. {RESTORE}") from error


@contextmanager
def explained() -> Iterator[None]:
    """As `settings_explained`, for more errors.

    Exit status 2 also for a path that is not usable, 1 for a disk or a ledger that fails.
    """
    with settings_explained():
        try:
            yield
        except BrokenPipeError:
            raise  # the reader of our output has gone, and typer ends
        except OSError as error:
            raise ended(2 if isinstance(error, _WRONG_PATH) else 1, _of_path(error)) from error
        except Retry as error:
            raise ended(
                1, f"{error.detail}{'; `hilum check` says more' if error.is_outage else ''}"
            ) from error
        except _of_database() as error:
            raise ended(
                1,
                f"ledger: {_words(error)}. It has to run, to be writable for this user and to have"
                " room: then do it again.",
            ) from error


def ended(status: int, *problems: str) -> typer.Exit:
    """Print each problem on standard error, and return the exit to raise."""
    for problem in problems:
        print(f"hilum: {problem}", file=sys.stderr)
    return typer.Exit(status)


def waiting(problem: str) -> None:
    """Print on standard error why a command waits."""
    print(f"hilum: waits: {problem}", file=sys.stderr, flush=True)


def require_known(noun: str, given: str, known: Iterable[str]) -> None:
    """Exit status 2 for a value that is not one of `known`."""
    if given not in (known := list(known)):
        raise ended(2, f"unknown {noun} {given!r}; use {', '.join(known)}")


def require_destination(settings: Settings, name: str) -> None:
    """Exit status 2 for a destination that the settings do not name."""
    if name not in settings.destinations:
        known = ", ".join(settings.destinations) or "none"
        raise ended(2, f"no destination {name!r} in the settings; known: {known}")


def _of_path(error: OSError) -> str:
    """Of two paths the second: the target of the write."""
    path = error.filename2 or error.filename
    return (
        f"{f'{path}: ' if path else ''}{error.strerror or type(error).__name__}. {_advice(error)}"
    )


def _advice(error: OSError) -> str:
    if isinstance(error, PermissionError):
        return "Do this as the user of the server, as in `sudo -u hilum hilum ...`, or as root."
    if isinstance(error, _WRONG_PATH):
        return "Give another path."
    return (
        "Make room there, then do it again."
        if error.errno in _FULL
        else "See what is wrong there, then do it again."
    )


def _of_database() -> tuple[type[Exception], ...]:
    """Looked up when something was raised: no command is to wait for SQLAlchemy's import."""
    from hilum.store.database.engines import AWAY  # noqa: PLC0415 - as said

    return *AWAY, sqlite3.OperationalError


def _of_file() -> tuple[type[Exception], ...]:
    """Yield the message about a ledger's file, damaged or not.

    A command that has not loaded SQLAlchemy has not used a ledger.
    """
    loaded = sys.modules.get("sqlalchemy.exc")
    return (
        (sqlite3.DatabaseError,)
        if loaded is None
        else (sqlite3.DatabaseError, loaded.DatabaseError)
    )


def _of_ledger() -> tuple[type[Exception], ...]:
    return (*_of_file(), *_of_database(), Retry)


def _words(error: Exception) -> str:
    """The first line of the database's own, without our statement and its values."""
    return str(getattr(error, "orig", None) or error).strip().partition("\n")[0]


def settings_of(config: Path | None) -> Settings:
    """The settings, or every problem with them and exit status 2."""
    with explained():
        return load(config)


def migrated_settings(config: Path | None) -> Settings:
    """Settings of an installation whose ledger is there."""
    settings = settings_of(config)
    from hilum.store.migrations.revision import require_revision  # noqa: PLC0415 - imports the ledger

    with explained():
        require_revision(settings.ledger_url)
    return settings


def performs(verb: Verb) -> Callable[[Callable[P, None]], Callable[P, None]]:
    """Declare the verb of a command, for `acting` within it."""

    def declare(command: Callable[P, None]) -> Callable[P, None]:
        @functools.wraps(command)
        def perform(*args: P.args, **kwargs: P.kwargs) -> None:
            _verb.set(verb)
            command(*args, **kwargs)

        return declare_verb(verb)(perform)

    return declare


def actor_here() -> Actor:
    """Return the user of this command: the login user, also through sudo.

    In a container a user may have a number and no name.
    """
    user = _name_of(os.getuid())
    login = os.environ.get("SUDO_USER", "")
    return Actor(f"{login} as {user}"[:64] if login and login != user else user, Channel.CLI)


def _name_of(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"uid {uid}"


def seconds_of(moment: datetime | None) -> float | None:
    """Seconds since the epoch of a moment by this machine's clock."""
    return moment.timestamp() if moment else None


@contextmanager
def acting(
    settings: Settings,
    study_uid: str | None = None,
    thing: Thing | None = None,
    name: object = None,
) -> Iterator[Deed]:
    """Write the command's row of the audit, however it ends.

    Use it inside `explained`.
    """
    from hilum.store.audit.log import AuditLog, Deed  # noqa: PLC0415 - imports the ledger

    verb = _verb.get()
    deed = Deed(verb, actor_here(), study_uid)
    if thing is not None:
        deed.about(thing, name)
    if not _keeps_audit(settings.ledger_url):
        yield deed
        return
    with closing(AuditLog(settings.ledger_url, lost=_say_lost)) as log:
        if MEANINGS[verb].is_long and verb is not Verb.ERASE:  # it begins when it has a digest
            log.begin(deed)
        try:
            yield deed
        except _of_ledger():  # the ledger is damaged or away: it takes no row
            raise
        except BrokenPipeError:  # the reader of our output has gone
            log.end(deed, VerbOutcome.DONE)
            raise
        except (ConfigurationError, typer.Exit):
            log.end(deed, VerbOutcome.REFUSED)
            raise
        except BaseException:
            log.end(deed, VerbOutcome.FAILED)
            raise
        log.end(deed, VerbOutcome.DONE)


def _keeps_audit(url: str) -> bool:
    """Not before there is a ledger, nor in one that an earlier version has left."""
    # Imports the ledger.
    from hilum.services.same_user import ledger_files  # noqa: PLC0415 - the same
    from hilum.store.migrations.revision import (  # noqa: PLC0415
        REVISION,
        current_revision,
    )

    with suppress(ConfigurationError):
        return (
            all(file.exists() for file in ledger_files(url)[:1])
            and current_revision(url) == REVISION
        )
    return False


def _say_lost(row: Mapping[str, Any], why: str) -> None:
    print(f"hilum: no row of the audit for {row['verb']}, {row['outcome']}: {why}", file=sys.stderr)


def _version(value: bool) -> None:
    if value:
        print(f"hilum {__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Chest radiographs in by DICOM, AI results out as Structured Reports and JSON.

    For research use only.
    """
