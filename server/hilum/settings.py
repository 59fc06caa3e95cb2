"""Frozen settings: defaults, then a TOML file, then `HILUM_<SECTION>__<NAME>`. Every error is reported at once.

`docs/settings.md` is generated from the descriptions here. Units are in the names.
"""

from __future__ import annotations

import difflib
import json
import os
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from hilum.errors import ConfigurationError

AeTitle = Annotated[str, Field(min_length=1, max_length=16, pattern=r"^[^\\\x00-\x1f]*$")]
Port = Annotated[int, Field(ge=1, le=65535)]
_TYPE_WORDS: Mapping[object, str] = {str: "text", bool: "true or false", int: "integer", float: "number", Path: "path"}
_LOOPBACK = ("127.0.0.1", "::1", "localhost")


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Site(_Section):
    """Who runs this installation."""

    name: str = Field("Hilum", max_length=64, description="Institution or installation name; written into reports.")
    state_dir: Path = Field(Path("state"), description="Folder for the archive, the ledger, built models and run-time files.")


class Receive(_Section):
    """The DICOM listener (C-ECHO, C-STORE)."""

    host: str = Field("0.0.0.0", description="Address to bind. Restrict it, or allow-list senders, on a shared network.")  # noqa: S104 - a PACS router on another host must reach it
    port: Port = Field(11112, description="TCP port of the DICOM listener.")
    ae_titles: tuple[AeTitle, ...] = Field(
        ("HILUM",), min_length=1, description="Called AE Titles that are answered; any other is rejected (1,1,7)."
    )
    calling_ae_titles: tuple[AeTitle, ...] = Field((), description="Calling AE Titles that may connect; empty: any.")
    processes: int = Field(1, ge=1, le=64, description="Listener processes on the one listening socket.")
    maximum_associations: int = Field(
        50, ge=1, le=4096, description="Simultaneous associations of one process; one more is rejected (2,3,2)."
    )
    maximum_pdu_bytes: int = Field(131072, ge=4096, le=1 << 24, description="Largest PDU that senders may use.")
    maximum_object_bytes: int = Field(1 << 30, ge=1 << 20, description="Largest data set accepted; a larger one is answered 0xA700.")
    acse_timeout_seconds: float = Field(30.0, gt=0, description="Limit for negotiation and release.")
    dimse_timeout_seconds: float = Field(60.0, gt=0, description="Limit for one DIMSE message.")
    network_timeout_seconds: float = Field(60.0, gt=0, description="An association idle for longer is aborted.")
    reserve_bytes: int = Field(2 << 30, ge=0, description="Free disk space that is never used: below it C-STORE is answered 0xA700.")


class Studies(_Section):
    """When a study is complete."""

    quiet_seconds: float = Field(10.0, ge=0, le=86400, description="No new image for this long closes a study.")
    quiet_seconds_by_ae: Mapping[AeTitle, float] = Field({}, description="Quiet period by Calling AE Title, where it differs.")
    maximum_wait_seconds: float = Field(
        120.0, ge=0, description="A study that keeps growing closes this long after its first image; later images revise it."
    )

    def quiet_for(self, calling_ae_title: str) -> float:
        """Quiet period for one sender, seconds."""
        return self.quiet_seconds_by_ae.get(calling_ae_title, self.quiet_seconds)


class Models(_Section):
    """Which releases read the images."""

    manifests: Path | None = Field(None, description="Folder of `<release>/manifest.toml`; default: model_repository of the installation.")
    built: Path | None = Field(None, description="Folder of the built Triton trees; default: <state_dir>/models.")
    releases: tuple[str, ...] = Field(
        ("densenet121_untrained@1",), min_length=1, description="Releases (name@version) that read every image."
    )


class Triton(_Section):
    """Where the models run."""

    url: str = Field("", description="gRPC address host:port of a Triton that somebody else runs; empty: Hilum starts the embedded one.")
    start_timeout_seconds: float = Field(120.0, gt=0, description="Limit for the embedded server to become ready.")
    exit_timeout_seconds: float = Field(15.0, gt=0, description="Limit for the embedded server to finish its queue at shutdown.")


class Analyse(_Section):
    """Decoding, preprocessing and inference."""

    processes: int = Field(1, ge=1, le=16, description="Analyser processes (one a GPU).")
    device: str = Field("cpu", pattern=r"^(cpu|cuda(:\d+)?)$", description="Where tensors are prepared: cpu, cuda or cuda:N.")
    decode_processes: int = Field(
        0, ge=0, le=256, description="Decode processes of one analyser; 0: one fewer than the cores, at least one."
    )
    batches_in_flight: int = Field(2, ge=1, le=16, description="Batches on their way to Triton at once, for each release.")
    deadline_seconds: float = Field(30.0, gt=0, description="Limit for one inference request.")
    maximum_pixels: int = Field(100_000_000, ge=1, description="Images with more pixels are not analysed (too_large).")
    canary_seconds: float = Field(15.0, gt=0, description="A known image is sent through each release this often; readiness rests on it.")


class Pipeline(_Section):
    """Leases, retries and back-off of every stage."""

    maximum_attempts: int = Field(8, ge=1, description="Tries before a reading fails or a delivery is dead.")
    maximum_lapses: int = Field(3, ge=1, description="Leases that may lapse (a worker died) before an item fails.")
    backoff_seconds: float = Field(2.0, gt=0, description="First pause between tries; it doubles each time.")
    maximum_backoff_seconds: float = Field(300.0, gt=0, description="Longest pause between tries.")
    poll_seconds: float = Field(2.0, gt=0, description="A stage looks for work this often even if no doorbell rings.")
    dispatchers: int = Field(1, ge=1, le=16, description="Dispatcher processes (assemble, report, deliver).")
    report_processes: int = Field(1, ge=1, le=64, description="Processes of one dispatcher that build reports.")


class Ledger(_Section):
    """Where the rows are."""

    url: str = Field("", description="SQLAlchemy URL; empty: SQLite in the state folder; postgresql+psycopg://… for many hosts.")


class Report(_Section):
    """What every document says about its maker."""

    manufacturer: str = Field("Hilum project", max_length=64, description="Manufacturer (0008,0070) of documents.")
    series_number: int = Field(9001, ge=1, le=2147483647, description="Series Number of the SR series.")
    disclaimer: str = Field(
        "AI result, not verified by a physician. For research use only, not for diagnosis.",
        max_length=1024,
        description="Sentence that accompanies every result.",
    )


class Destination(_Section):
    """One receiver of documents: `[destinations.<name>]`."""

    kind: Literal["dicom", "folder"] = Field("dicom", description="dicom: C-STORE; folder: files, renamed into place when complete.")
    host: str = Field("127.0.0.1", description="dicom: host of the receiver.")
    port: Port = Field(4242, description="dicom: port of the receiver.")
    ae_title: AeTitle = Field("PACS", description="dicom: Called AE Title.")
    calling_ae_title: AeTitle = Field("HILUM", description="dicom: our AE Title.")
    path: Path | None = Field(None, description="folder: where the files go.")
    documents: tuple[Literal["sr", "json"], ...] = Field(("sr",), min_length=1, description="Kinds of document it receives.")
    accept_untrained: bool = Field(default=False, description="Takes results of untrained weights; refuse them for any clinical receiver.")
    timeout_seconds: float = Field(30.0, gt=0, description="dicom: limit for each message.")
    idle_release_seconds: float = Field(20.0, ge=0, description="dicom: an association unused this long is released.")

    @model_validator(mode="after")
    def _has_what_its_kind_needs(self) -> Destination:
        if self.kind == "folder" and self.path is None:
            raise ValueError('a folder destination needs path = "…"')
        if self.kind == "dicom" and "json" in self.documents:
            raise ValueError('a dicom destination cannot take "json"; use documents = ["sr"]')
        return self


class Api(_Section):
    """REST, health and metrics."""

    host: str = Field("127.0.0.1", description="Address to bind; anything but loopback needs a token.")
    port: Port = Field(8640, description="TCP port of REST, health and metrics.")
    token: str = Field("", description="Bearer token for /api; empty: no token, loopback only. Give it by HILUM_API__TOKEN.", repr=False)

    @model_validator(mode="after")
    def _token_when_public(self) -> Api:
        if self.host not in _LOOPBACK and not self.token:
            raise ValueError(f'host {self.host} is not loopback, so set a token (HILUM_API__TOKEN) or host = "127.0.0.1"')
        return self


class Log(_Section):
    """Logs go to standard error."""

    level: Literal["debug", "info", "warning", "error"] = Field("info", description="Least level that is written.")
    format: Literal["console", "json"] = Field("console", description="console for people, json for collectors.")


class Settings(BaseSettings):
    """All settings of one installation."""

    model_config = SettingsConfigDict(
        frozen=True, extra="forbid", env_prefix="HILUM_", env_nested_delimiter="__", nested_model_default_partial_update=True
    )

    site: Site = Site()
    receive: Receive = Receive()
    studies: Studies = Studies()
    models: Models = Models()
    triton: Triton = Triton()
    analyse: Analyse = Analyse()
    pipeline: Pipeline = Pipeline()
    ledger: Ledger = Ledger()
    report: Report = Report()
    destinations: Mapping[str, Destination] = {}
    api: Api = Api()
    log: Log = Log()

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],  # noqa: ARG003 - the signature is pydantic-settings' own
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003 - the same
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003 - the same
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """The environment wins over the file, whose content arrives as init arguments."""
        return env_settings, init_settings

    @field_validator("destinations")
    @classmethod
    def _names_are_simple(cls, value: Mapping[str, Destination]) -> Mapping[str, Destination]:
        bad = [name for name in value if not name.replace("_", "").replace("-", "").isalnum()]
        if bad:
            raise ValueError(f"names may hold letters, digits, _ and - only: {', '.join(bad)}")
        return value

    @property
    def archive_dir(self) -> Path:
        """Where received objects are kept."""
        return self.site.state_dir / "archive"

    @property
    def run_dir(self) -> Path:
        """Sockets, metrics files and process files of the running server."""
        return self.site.state_dir / "run"

    @property
    def built_dir(self) -> Path:
        """Built Triton model trees."""
        return self.models.built or self.site.state_dir / "models"

    @property
    def manifests_dir(self) -> Path:
        """Manifests, one folder a release."""
        return self.models.manifests or Path(__file__).resolve().parents[2] / "model_repository"

    @property
    def ledger_url(self) -> str:
        """SQLAlchemy URL of the ledger."""
        return self.ledger.url or f"sqlite:///{(self.site.state_dir / 'ledger.sqlite').resolve()}"

    def dump(self) -> str:
        """JSON that `restore` takes back, for a child process; secrets included, so it never goes to disk."""
        return self.model_dump_json()


def restore(text: str) -> Settings:
    """Settings from `Settings.dump`; the environment is not read again, so all processes agree."""
    content = json.loads(text)
    destinations = {name: Destination.model_validate(item) for name, item in content.pop("destinations").items()}
    sections: dict[str, Any] = {name: _section(name).model_validate(value) for name, value in content.items()}
    return Settings.model_construct(None, **sections, destinations=destinations)


def find_file(explicit: Path | None) -> Path | None:
    """The settings file: --config, HILUM_CONFIG, ./hilum.toml, /etc/hilum/hilum.toml; None: defaults only."""
    if explicit is not None:
        return explicit
    if named := os.environ.get("HILUM_CONFIG"):
        return Path(named)
    return next((p for p in (Path("hilum.toml"), Path("/etc/hilum/hilum.toml")) if p.is_file()), None)


def load(path: Path | None = None) -> Settings:
    """Settings from the file (see `find_file`) and the environment. Raises ConfigurationError with all problems."""
    file = find_file(path)
    try:
        content = tomllib.loads(file.read_text(encoding="utf-8")) if file else {}
    except OSError as error:
        raise ConfigurationError([f"{file}: {error.strerror}. Give an existing file with --config or HILUM_CONFIG."]) from error
    except tomllib.TOMLDecodeError as error:
        raise ConfigurationError([f"{file}: not valid TOML: {error}"]) from error
    unknown = dict(_unknown_environment())
    problems = list(unknown.values())
    try:
        settings = Settings(**content)
    except ValidationError as error:
        problems += [_explain(item, file) for item in error.errors() if item["loc"] not in unknown]
        settings = None
    if problems or settings is None:
        raise ConfigurationError(problems)
    return settings


def _section(name: str) -> type[BaseModel]:
    annotation = Settings.model_fields[name].annotation
    if not (isinstance(annotation, type) and issubclass(annotation, BaseModel)):  # pragma: no cover - guarded by the callers
        raise TypeError(name)
    return annotation


def _known(prefix: tuple[str, ...]) -> list[str]:
    """Names that may stand after this prefix."""
    if not prefix:
        return list(Settings.model_fields)
    if prefix[0] == "destinations":
        return list(Destination.model_fields) if len(prefix) == 2 else []
    return list(_section(prefix[0]).model_fields) if len(prefix) == 1 and prefix[0] in Settings.model_fields else []


def _nearest(name: str, known: list[str]) -> str:
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    return f"; did you mean {close[0]!r}?" if close else f"; known: {', '.join(known)}" if known else ""


def _explain(item: Mapping[str, Any], file: Path | None) -> str:
    place = tuple(str(part) for part in item["loc"])
    where = f"{file}: " if file else ""
    if item["type"] == "extra_forbidden":
        return f"{where}{'.'.join(place)}: unknown setting{_nearest(place[-1], _known(place[:-1]))}"
    value = "" if "token" in place else f" (got {item.get('input')!r})"
    return (
        f"{where}{'.'.join(place)}: {item['msg'].removeprefix('Value error, ')}{value if not isinstance(item.get('input'), dict) else ''}"
    )


def _unknown_environment() -> Iterator[tuple[tuple[int | str, ...], str]]:
    """HILUM_ variables that name no setting, by their place: a typo there must not be silent."""
    reserved = {"HILUM_CONFIG", "HILUM_TEST_DATA"}
    for name in sorted(os.environ):
        if not name.startswith("HILUM_") or name in reserved:
            continue
        place = tuple(part.lower() for part in name.removeprefix("HILUM_").split("__"))
        for depth, part in enumerate(place):
            known = _known(place[:depth])
            is_destination_name = depth == 1 and place[0] == "destinations"
            if known and part not in known and not is_destination_name:
                yield place, f"{name}: unknown setting{_nearest(part, known)}"
                break


def describe() -> Iterator[tuple[str, str, str, str]]:
    """(name, type, default, description) of every setting, for the documentation."""
    for section in Settings.model_fields:
        model = Destination if section == "destinations" else _section(section)
        prefix = f"{section}.<name>" if section == "destinations" else section
        for name, info in model.model_fields.items():
            yield f"{prefix}.{name}", _type_name(info.annotation), _as_toml(info.get_default()), info.description or ""


def _type_name(annotation: object) -> str:
    """A type in the words of TOML."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Literal:
        return " or ".join(arguments)
    if origin is tuple:
        return f"list of {_type_name(arguments[0])}"
    if origin is Mapping:
        return "table"
    if arguments:  # Annotated[X, …] and X | None
        return _type_name(arguments[0])
    return _TYPE_WORDS[annotation]


def _as_toml(value: object) -> str:
    """A default as it would stand in the file; empty where there is none."""
    if value is None:
        return ""
    return json.dumps(str(value) if isinstance(value, Path) else value, ensure_ascii=False)
