"""Frozen settings: defaults, then a TOML file, then `HILUM_<SECTION>__<NAME>`. Every error is reported at once.

`docs/settings.md` is generated from the descriptions here. Units are in the names.
"""

from __future__ import annotations

import difflib
import ipaddress
import json
import os
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, ValidationInfo, field_validator, model_validator
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from hilum.domain import SR_LADDER
from hilum.errors import ConfigurationError

AeTitle = Annotated[str, Field(min_length=1, max_length=16, pattern=r"^[^\\\x00-\x1f]*$")]
Port = Annotated[int, Field(ge=1, le=65535)]


def _network(value: str) -> str:
    """An address or a range; host bits that are set would silently widen what somebody meant."""
    ipaddress.ip_network(value)
    return value


Network = Annotated[str, AfterValidator(_network)]
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
    peers: tuple[Network, ...] = Field(
        (), description="Addresses that may connect, single ones or CIDR ranges (`10.1.0.0/16`); others are rejected (1,1,1); empty: any."
    )
    processes: int = Field(1, ge=1, le=64, description="Listener processes on the one listening socket.")
    maximum_associations: int = Field(
        50, ge=1, le=4096, description="Simultaneous associations of one process; one more is rejected (2,3,2)."
    )
    maximum_associations_by_ae: Mapping[AeTitle, Annotated[int, Field(ge=0)]] = Field(
        {}, description="The same for one Calling AE Title, so that a busy archive leaves room for the modalities; 0: none."
    )
    listener: Literal["streaming", "pynetdicom"] = Field(
        "streaming",
        description="Who receives after the negotiation. streaming: our loop, from the socket to the file; pynetdicom: that library alone, "
        "with the same answers at several times the cost.",
    )
    write_out_bytes: int = Field(
        1 << 20,
        ge=0,
        description="So many bytes of an object go to the disk while the rest comes in; 0: all at its end, for spinning and network disks.",
    )
    maximum_pdu_bytes: int = Field(131072, ge=4096, le=1 << 24, description="Largest PDU that senders may use.")
    maximum_object_bytes: int = Field(1 << 30, ge=1 << 20, description="Largest data set accepted; a larger one is answered 0xA700.")
    acse_timeout_seconds: float = Field(30.0, gt=0, description="Limit for negotiation and release.")
    dimse_timeout_seconds: float = Field(60.0, gt=0, description="Limit for one DIMSE message.")
    network_timeout_seconds: float = Field(60.0, gt=0, description="An association idle for longer is aborted.")
    reserve_bytes: int = Field(2 << 30, ge=0, description="Free disk space that is never used: below it C-STORE is answered 0xA700.")
    reject_bytes: int | None = Field(
        None, ge=0, description="Below this much free disk space new associations are rejected (2,3,2). Default: twice reserve_bytes."
    )
    maximum_due_readings: int = Field(
        0, ge=0, description="With so many readings of the lanes urgent and live waiting, new associations are rejected (2,3,2); 0: never."
    )

    @property
    def reject_below_bytes(self) -> int:
        """The soft watermark: never below the hard one."""
        return max(self.reserve_bytes, 2 * self.reserve_bytes if self.reject_bytes is None else self.reject_bytes)


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


class Retention(_Section):
    """When pixels leave the archive. Rows and documents stay; what is not delivered or not read yet always stays."""

    days: float = Field(0.0, ge=0, description="Days after the last delivery of a study until its pixels leave; 0: they stay.")
    reanalysis_days: float = Field(0.0, ge=0, description="The same for studies of the lane reanalysis.")
    pressure_free_bytes: int = Field(
        0, ge=0, description="Below this much free disk space pixels leave at once, oldest delivered first; 0: never. Above reject_bytes."
    )
    check_seconds: float = Field(60.0, gt=0, description="How often it is looked what may leave.")


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
    exit_timeout_seconds: float = Field(8.0, gt=0, description="Limit for the embedded server to finish its queue at shutdown.")


class Analyse(_Section):
    """Decoding, preprocessing and inference."""

    processes: int = Field(1, ge=1, le=16, description="Analyser processes (one a GPU).")
    device: str = Field("cpu", pattern=r"^(cpu|cuda(:\d+)?)$", description="Where tensors are prepared: cpu, cuda or cuda:N.")
    decode_processes: int = Field(
        0, ge=0, le=256, description="Decode processes of one analyser; 0: one fewer than the cores, at least one."
    )
    decode_seconds: float = Field(60.0, gt=0, le=100, description="Limit for one image; a decode process that takes longer is ended.")
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
    poll_seconds: float = Field(5.0, gt=0, description="A stage looks for work this often even if no doorbell rings.")
    dispatchers: int = Field(1, ge=1, le=16, description="Dispatcher processes (assemble, report, deliver).")
    report_processes: int = Field(1, ge=1, le=64, description="Processes of one dispatcher that build reports.")


class Ledger(_Section):
    """Where the rows are."""

    url: str = Field("", description="SQLAlchemy URL; empty: SQLite in the state folder; postgresql+psycopg://… for many hosts.")


class Report(_Section):
    """What every document says about its maker."""

    manufacturer: str = Field("Hilum project", max_length=64, description="Manufacturer (0008,0070) of documents.")
    series_number: int = Field(9001, ge=1, le=2147483647, description="Series Number of the SR series.")
    heat_map_series_number: int = Field(9002, ge=1, le=2147483647, description="Series Number of the heat maps' series.")
    intended_use: Literal["research", "triage"] = Field(
        "research",
        description="Profile of intended use. triage: heat maps are neither made nor linked, whatever a destination asks for "
        "(a triage device notifies and does not mark the image, 21 CFR 892.2080).",
    )
    disclaimer: str = Field(
        "AI result, not verified by a physician. For research use only, not for diagnosis.",
        max_length=1024,
        description="Sentence that accompanies every result.",
    )


class Destination(_Section):
    """One receiver of documents: `[destinations.<name>]`."""

    kind: Literal["dicom", "folder", "sender"] = Field(
        "dicom", description="dicom: C-STORE; folder: files, renamed into place when complete; sender: C-STORE back to who sent the study."
    )
    host: str = Field("127.0.0.1", description="dicom: host of the receiver.")
    port: Port = Field(4242, description="dicom: port of the receiver.")
    ae_title: AeTitle = Field("PACS", description="dicom: Called AE Title.")
    calling_ae_title: AeTitle = Field("HILUM", description="dicom: our AE Title.")
    path: Path | None = Field(None, description="folder: where the files go.")
    ports: Mapping[AeTitle, Port] = Field(
        {}, description="sender: the port of each sender, by the AE Title that it calls from; the host is that of its association."
    )
    documents: tuple[Literal["sr", "json", "heatmap"], ...] = Field(
        ("sr",), min_length=1, description="Kinds of document it receives. heatmap: a Secondary Capture image, linked from the SR."
    )
    accept_untrained: bool = Field(default=False, description="Takes results of untrained weights; refuse them for any clinical receiver.")
    report_not_analysed: bool = Field(
        default=False, description="Also gets a structured report on studies of which no image could be analysed, saying why."
    )
    sr_classes: tuple[Literal["comprehensive_3d", "comprehensive", "enhanced", "basic_text"], ...] = Field(
        ("comprehensive_3d", "comprehensive", "enhanced", "basic_text"),
        min_length=1,
        description="dicom: SOP Classes of structured reports to propose; the first in this order that the receiver accepts is sent.",
    )
    timeout_seconds: float = Field(30.0, gt=0, description="dicom: limit for each message.")
    idle_release_seconds: float = Field(20.0, ge=0, description="dicom: an association unused this long is released.")
    tls: bool = Field(default=False, description="dicom: TLS 1.2 or later to the receiver (PS3.15 Annex B); its certificate is verified.")
    ca_file: Path | None = Field(
        None, description="tls: PEM file of the authority that signed the receiver's certificate; none: the system's."
    )
    certificate_file: Path | None = Field(None, description="tls: PEM file of our certificate, for receivers that ask for one.")
    key_file: Path | None = Field(None, description="tls: PEM file of the key to it.")
    tls_server_name: str = Field("", description="tls: name in the receiver's certificate, where it is not host.")

    @model_validator(mode="after")
    def _has_what_its_kind_needs(self) -> Destination:
        if self.kind == "folder" and self.path is None:
            raise ValueError('a folder destination needs path = "…"')
        if self.kind == "sender" and not self.ports:
            raise ValueError('a sender destination needs ports = { "<CALLING_AE_TITLE>" = 104 }')
        if self.kind != "folder" and "json" in self.documents:
            raise ValueError('a dicom destination cannot take "json"; use documents = ["sr"] or ["sr", "heatmap"]')
        return self

    @field_validator("sr_classes")
    @classmethod
    def _follow_the_ladder(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        ladder = [item.name for item in SR_LADDER]
        if list(value) != [name for name in ladder if name in value]:
            raise ValueError(f"name each class once and in this order: {', '.join(ladder)}")
        return value

    @model_validator(mode="after")
    def _tls_is_whole(self) -> Destination:
        if not self.tls and (self.ca_file or self.certificate_file or self.key_file or self.tls_server_name):
            raise ValueError("ca_file, certificate_file, key_file and tls_server_name need tls = true")
        if (self.certificate_file is None) != (self.key_file is None):
            raise ValueError("certificate_file and key_file belong together; give both or none")
        return self


class Route(_Section):
    """What is different for studies that are sent to one Called AE Title: `[routes.<CALLED_AE_TITLE>]`.

    The first image of a study decides; what is left out is as without a route.
    """

    releases: tuple[str, ...] = Field((), description="Releases that read these studies; empty: models.releases.")
    destinations: tuple[str, ...] = Field((), description="Names of the destinations of their documents; empty: all.")
    quiet_seconds: float | None = Field(None, ge=0, le=86400, description="Quiet period; none: studies.quiet_seconds and its table.")
    lane: Literal["urgent", "live", "reanalysis"] = Field("live", description="Priority from the door to the engine.")


class Api(_Section):
    """REST, health and metrics."""

    host: str = Field("127.0.0.1", description="Address to bind; anything but loopback needs a token.")
    port: Port = Field(8640, description="TCP port of REST, health and metrics.")
    token: str = Field(
        "",
        description="Bearer token for /api and password of the pages; empty: none, loopback only. Give it by HILUM_API__TOKEN.",
        repr=False,
    )

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
    retention: Retention = Retention()
    models: Models = Models()
    triton: Triton = Triton()
    analyse: Analyse = Analyse()
    pipeline: Pipeline = Pipeline()
    ledger: Ledger = Ledger()
    report: Report = Report()
    destinations: Mapping[str, Destination] = {}
    routes: Mapping[AeTitle, Route] = {}
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

    @model_validator(mode="after")
    def _pixels_leave_before_associations_are_rejected(self) -> Settings:
        pressure, reject = self.retention.pressure_free_bytes, self.receive.reject_below_bytes
        if 0 < pressure <= reject:
            raise ValueError(f"retention.pressure_free_bytes: must be above {reject}, where receive begins to reject associations, or 0")
        return self

    @field_validator("routes")
    @classmethod
    def _routes_lead_somewhere(cls, value: Mapping[str, Route], info: ValidationInfo) -> Mapping[str, Route]:
        """A section that is wrong itself is not in `info.data`; then its own problem is reported."""
        problems: list[str] = []
        for title, route in value.items():
            if "receive" in info.data and title not in info.data["receive"].ae_titles:
                problems.append(f"{title} is not in receive.ae_titles; add it there")
            known = list(info.data.get("destinations", route.destinations))
            problems += [f"{title}: no destination {name!r}{_nearest(name, known)}" for name in route.destinations if name not in known]
        if problems:
            raise ValueError("; ".join(problems))
        return value

    def route_of(self, called_ae_title: str) -> Route:
        """The route of studies whose first image was sent to this AE Title."""
        return self.routes.get(called_ae_title, Route())

    def destinations_of(self, called_ae_title: str) -> Mapping[str, Destination]:
        """Where documents of these studies may go."""
        chosen = self.route_of(called_ae_title).destinations
        return {name: item for name, item in self.destinations.items() if not chosen or name in chosen}

    @property
    def active_releases(self) -> tuple[str, ...]:
        """Every release that reads some studies, those of routes included."""
        return tuple(dict.fromkeys([*self.models.releases, *(name for route in self.routes.values() for name in route.releases)]))

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


# Sections that hold named tables: of what model, and what the name is.
_NAMED: Mapping[str, tuple[type[_Section], str]] = {"destinations": (Destination, "<name>"), "routes": (Route, "<CALLED_AE_TITLE>")}


def restore(text: str) -> Settings:
    """Settings from `Settings.dump`; the environment is not read again, so all processes agree."""
    content = json.loads(text)
    sections: dict[str, Any] = {}
    for section, value in content.items():
        if section in _NAMED:
            sections[section] = {name: _NAMED[section][0].model_validate(item) for name, item in value.items()}
        else:
            sections[section] = _section(section).model_validate(value)
    return Settings.model_construct(None, **sections)


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
    if prefix[0] in _NAMED:
        return list(_NAMED[prefix[0]][0].model_fields) if len(prefix) == 2 else []
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
        f"{where}{'.'.join(place)}{': ' if place else ''}"
        f"{item['msg'].removeprefix('Value error, ')}{value if not isinstance(item.get('input'), dict) else ''}"
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
            is_name = depth == 1 and place[0] in _NAMED
            if known and part not in known and not is_name:
                yield place, f"{name}: unknown setting{_nearest(part, known)}"
                break


def describe() -> Iterator[tuple[str, str, str, str]]:
    """(name, type, default, description) of every setting, for the documentation."""
    for section in Settings.model_fields:
        model, prefix = (_NAMED[section][0], f"{section}.{_NAMED[section][1]}") if section in _NAMED else (_section(section), section)
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
