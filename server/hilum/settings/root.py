"""All sections together, and the rules between them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path

from pydantic import ValidationInfo, field_validator, model_validator

from hilum.domain import ARCHIVE, CAMPAIGN_AE_TITLE, FILES, PICTURES, RuleDecision
from hilum.rules import RuleTable
from hilum.settings.archive import ArchiveSection
from hilum.settings.destinations import (
    AnyDestination,
    Destination,
    ObjectDestination,
    message_settings,
)
from hilum.settings.fields import AeTitle, Section
from hilum.settings.guard import Guard
from hilum.settings.models import Analyse, Models, Triton
from hilum.settings.outbound import CommitmentPeer, Report
from hilum.settings.own_paths import MANIFESTS, paths_named
from hilum.settings.peers.workitems import WorkitemManager
from hilum.settings.peers.worklist import Worklist
from hilum.settings.receive import Receive
from hilum.settings.rules.former import advice, rules_of
from hilum.settings.rules.rule import StudyRule, problems_of, table_of
from hilum.settings.service import Api, Audit, LedgerSection, Log, Pipeline, Site, Stow, Tracing
from hilum.settings.sources import AnySource, CampaignLimits, CMoveSource
from hilum.settings.studies import Handling, Retention, Route, Sender, Studies, Watch
from hilum_preprocessing.spec.fields import nearest


class Settings(Section):
    """All settings of one installation."""

    site: Site = Site()
    receive: Receive = Receive()
    studies: Studies = Studies()
    retention: Retention = Retention()
    models: Models = Models()
    triton: Triton = Triton()
    analyse: Analyse = Analyse()
    guard: Guard = Guard()
    pipeline: Pipeline = Pipeline()
    ledger: LedgerSection = LedgerSection()
    archive: ArchiveSection = ArchiveSection()
    report: Report = Report()
    destinations: Mapping[str, AnyDestination] = {}
    routes: Mapping[AeTitle, Route] = {}
    senders: Mapping[AeTitle, Sender] = {}
    rules: tuple[StudyRule, ...] = ()  # after all that they name
    worklist: Worklist = Worklist()
    commitment: Mapping[AeTitle, CommitmentPeer] = {}
    sources: Mapping[str, AnySource] = {}
    campaigns: CampaignLimits = CampaignLimits()
    workitems: Mapping[str, WorkitemManager] = {}
    watch: Mapping[str, Watch] = {}  # after all that names files of ours
    api: Api = Api()
    stow: Stow = Stow()
    log: Log = Log()
    tracing: Tracing = Tracing()
    audit: Audit = Audit()

    @field_validator("destinations")
    @classmethod
    def _folders_lie_beside_the_archive(
        cls, value: Mapping[str, Destination], info: ValidationInfo
    ) -> Mapping[str, Destination]:
        archive = info.data["site"].state_dir / "archive" if "site" in info.data else None
        bad = [
            name
            for name, item in value.items()
            if item.folder and archive and item.folder.resolve().is_relative_to(archive.resolve())
        ]
        if bad:
            raise ValueError(f"path must not lie in the archive ({archive}): {', '.join(bad)}")
        return value

    @field_validator("destinations")
    @classmethod
    def _names_are_simple(cls, value: Mapping[str, Destination]) -> Mapping[str, Destination]:
        bad = [name for name in value if not name.replace("_", "").replace("-", "").isalnum()]
        if bad:
            raise ValueError(f"names may hold letters, digits, _ and - only: {', '.join(bad)}")
        return value

    @field_validator("destinations")
    @classmethod
    def _hl7_messages_are_one(cls, value: Mapping[str, Destination]) -> Mapping[str, Destination]:
        message_settings(value)
        return value

    @model_validator(mode="after")
    def _pixels_leave_before_associations_are_rejected(self) -> Settings:
        pressure = self.retention.pressure_free_bytes
        reject = self.receive.reject_below_bytes
        if 0 < pressure <= reject:
            raise ValueError(
                f"retention.pressure_free_bytes: must be above {reject}, where receive begins to"
                " reject associations, or 0"
            )
        return self

    @field_validator("routes", "senders", "commitment", mode="before")
    @classmethod
    def _titles_differ(cls, value: object) -> object:
        titles = [str(title).strip(" ") for title in value] if isinstance(value, Mapping) else []
        if twice := sorted({title for title in titles if titles.count(title) > 1}):
            raise ValueError(
                f"titles must not differ in the spaces around them only: {', '.join(twice)}"
            )
        return value

    @field_validator("routes")
    @classmethod
    def _routes_lead_somewhere(
        cls, value: Mapping[str, Route], info: ValidationInfo
    ) -> Mapping[str, Route]:
        """A section that is wrong itself is not in `info.data`.

        Then its own problem is reported.
        """
        problems: list[str] = []
        for title, route in value.items():
            if "receive" in info.data and title not in info.data["receive"].ae_titles:
                problems.append(f"{title} is not in receive.ae_titles; add it there")
            problems += _unknown_destinations(title, route.destinations, info)
        if problems:
            raise ValueError("; ".join(problems))
        return value

    @field_validator("senders")
    @classmethod
    def _senders_name_what_there_is(
        cls, value: Mapping[str, Sender], info: ValidationInfo
    ) -> Mapping[str, Sender]:
        problems: list[str] = []
        for title, sender in value.items():
            known = list(
                info.data["receive"].ae_titles
                if "receive" in info.data
                else sender.called_ae_titles
            )
            wrong = [called for called in sender.called_ae_titles if called not in known]
            problems += [
                f"{title}: called_ae_titles: {called!r} is not in"
                f" receive.ae_titles{nearest(called, known, cutoff=0.5)}"
                for called in wrong
            ]
            problems += _unknown_destinations(title, sender.destinations, info)
            if (
                sender.certificate_names
                and "receive" in info.data
                and not info.data["receive"].tls_client_ca_file
            ):
                problems.append(
                    f"{title}: certificate_names needs receive.tls_client_ca_file: senders show no"
                    " certificate without it"
                )
        if problems:
            raise ValueError("; ".join(problems))
        return value

    @field_validator("rules")
    @classmethod
    def _rules_can_be_followed(
        cls, value: tuple[StudyRule, ...], info: ValidationInfo
    ) -> tuple[StudyRule, ...]:
        known = info.data["receive"].ae_titles if "receive" in info.data else ()
        problems = problems_of(value, (*known, CAMPAIGN_AE_TITLE) if known else ())
        for rule in value:
            names = rule.then.destinations or ()
            problems += _unknown_destinations(rule.name, names, info)
        former = rules_of(info.data.get("routes", {}), info.data.get("senders", {}))
        if value and former:
            problems.append(f"they stand beside the former way to say it: {advice(former)}")
        if problems:
            raise ValueError("; ".join(problems))
        return value

    @field_validator("sources")
    @classmethod
    def _sources_have_a_door(
        cls, value: Mapping[str, AnySource], info: ValidationInfo
    ) -> Mapping[str, AnySource]:
        """Refuse a Move Destination that is none of ours, or that a route or a folder uses."""
        problems = [
            f"{name}: no name of a source: letters, digits, _ and -, and not {', '.join(_BUILT_IN)}"
            for name in value
            if not name.replace("_", "").replace("-", "").isalnum() or name in _BUILT_IN
        ]
        for name, source in value.items():
            if not isinstance(source, CMoveSource) or "receive" not in info.data:
                continue
            title = source.move_ae_title
            titles = info.data["receive"].ae_titles
            if title not in titles:
                problems.append(
                    f"{name}: move_ae_title {title} is not in receive.ae_titles; add it"
                )
            elif title == titles[0] or title in info.data.get("routes", {}):
                problems.append(
                    f"{name}: move_ae_title {title} must be for this source alone: neither the"
                    " first of receive.ae_titles nor a route"
                )
        if problems:
            raise ValueError("; ".join(problems))
        return value

    @field_validator("workitems")
    @classmethod
    def _managers_name_what_there_is(
        cls, value: Mapping[str, WorkitemManager], info: ValidationInfo
    ) -> Mapping[str, WorkitemManager]:
        if problems := list(_problems_of_managers(value, info.data.get("destinations"))):
            raise ValueError("; ".join(problems))
        return value

    @field_validator("watch")
    @classmethod
    def _watched_folders_are_their_own(
        cls, value: Mapping[str, Watch], info: ValidationInfo
    ) -> Mapping[str, Watch]:
        """Refuse a watched folder inside our own files, or inside another watched folder.

        Files in them are moved or deleted.
        """
        taken = {name: path.resolve() for name, path in paths_named(info.data)}
        for name, watch in value.items():
            _require_called(watch.called_ae_title, info)
            folder = watch.path.resolve()
            for other, theirs in taken.items():
                if folder.is_relative_to(theirs) or theirs.is_relative_to(folder):
                    raise ValueError(
                        f"{name}: path must lie beside {other}, not in it or around it"
                    )
            taken[f"the path of {name}"] = folder
        return value

    @field_validator("stow")
    @classmethod
    def _stow_has_a_route(cls, value: Stow, info: ValidationInfo) -> Stow:
        _require_called(value.called_ae_title, info)
        return value

    def sender(self, calling_ae_title: str) -> Sender:
        """Return the settings that differ for this AE Title."""
        return self.senders.get(calling_ae_title.strip(), _ANY_SENDER)

    @cached_property
    def rules_in_use(self) -> tuple[StudyRule, ...]:
        """The rules, or those that routes and senders mean; none: all studies are alike."""
        return self.rules or rules_of(self.routes, self.senders)

    @cached_property
    def rule_table(self) -> RuleTable | None:
        """The rules in use, compiled; None: all studies are alike."""
        return table_of(self.rules_in_use) if self.rules_in_use else None

    def handling(self, decision: RuleDecision | None) -> Handling:
        """Return the complete settings for a study with this decision.

        A setting that the rule left out is as for all studies. None: all of them.
        """
        said = decision or _NOTHING_SAID
        return Handling(
            priority=said.priority or "live",
            releases=self._readers(said.releases),
            destinations=tuple(self.destinations)
            if said.destinations is None
            else said.destinations,
            quiet_seconds=_first(said.quiet_seconds, self.studies.quiet_seconds),
            maximum_wait_seconds=_first(
                said.maximum_wait_seconds, self.studies.maximum_wait_seconds
            ),
            not_analysed=said.not_analysed,
        )

    def _readers(self, named: Sequence[str] | None) -> tuple[str, ...]:
        """Return the releases, once each: those of the rule that are still in the settings."""
        active = self.active_releases
        left = tuple(dict.fromkeys(name for name in named or () if name in active))
        return left or tuple(dict.fromkeys(self.models.releases))

    @cached_property
    def active_releases(self) -> tuple[str, ...]:
        """Every release that reads some studies, those of rules, routes and senders included."""
        some = [name for rule in self.rules_in_use for name in rule.then.releases or ()]
        return tuple(dict.fromkeys([*self.models.releases, *some]))

    @property
    def campaign_titles(self) -> frozenset[str]:
        """Called AE Titles of images that campaigns fetch; nothing else comes to them."""
        sources = self.sources.values()
        moved = (item.move_ae_title for item in sources if isinstance(item, CMoveSource))
        return frozenset((CAMPAIGN_AE_TITLE, *moved))

    @property
    def limited_senders(self) -> tuple[str, ...]:
        """Calling AE Titles with a limit of their own, in an order on which all processes agree."""
        return tuple(
            sorted(
                title
                for title, sender in self.senders.items()
                if sender.maximum_associations is not None
            )
        )

    @property
    def own_paths(self) -> dict[Path, str]:
        """Files and folders that these settings name, resolved, each with its setting.

        Watched folders are not among them: other programs write there.
        """
        sections = {
            name: getattr(self, name) for name in type(self).model_fields if name != "watch"
        }
        # Not path.resolve(), which raises for a link to itself: who uses the file says what is
        # wrong with it.
        return {Path(os.path.realpath(path)): name for name, path in paths_named(sections)}

    @property
    def archive_dir(self) -> Path:
        """Where received objects are kept; with `archive.url`: until they are in the store."""
        return self.site.state_dir / "archive"

    @property
    def run_dir(self) -> Path:
        """Sockets, metrics files and process files of the running server."""
        return self.site.state_dir / "run"

    @property
    def row_exports_dir(self) -> Path:
        """Exports of rows that have left the ledger."""
        return self.retention.row_exports or self.site.state_dir / "row_exports"

    @property
    def built_dir(self) -> Path:
        """Built Triton model trees."""
        return self.models.built or self.site.state_dir / "models"

    @property
    def manifests_dir(self) -> Path:
        """Manifests, one folder a release."""
        return self.models.manifests or MANIFESTS

    @property
    def ledger_url(self) -> str:
        """SQLAlchemy URL of the ledger."""
        return self.ledger.url or f"sqlite:///{(self.site.state_dir / 'ledger.sqlite').resolve()}"

    def dump(self) -> str:
        """JSON that `restore` takes back, for a child process.

        Secrets included, so it never goes to disk.
        """
        return self.model_dump_json()


_ANY_SENDER = Sender()
_BUILT_IN = (FILES, PICTURES, ARCHIVE)
_NOTHING_SAID = RuleDecision("", "")


def _first(*values: float | None) -> float:
    """The first that is said; the last one always is."""
    return next(value for value in values if value is not None)


def _unknown_destinations(title: str, names: Iterable[str], info: ValidationInfo) -> list[str]:
    if "destinations" not in info.data:
        return []
    known = list(info.data["destinations"])
    return [
        f"{title}: no destination {name!r}{nearest(name, known, cutoff=0.5)}"
        for name in names
        if name not in known
    ]


def _require_called(called_ae_title: str, info: ValidationInfo) -> None:
    if (
        called_ae_title
        and "receive" in info.data
        and called_ae_title not in info.data["receive"].ae_titles
    ):
        raise ValueError(
            f"called_ae_title {called_ae_title} is not in receive.ae_titles; add it there"
        )


def _problems_of_managers(
    managers: Mapping[str, WorkitemManager],
    destinations: Mapping[str, Destination] | None,
) -> Iterator[str]:
    """Yield the faults of sections among each other. None: the destinations have faults."""
    for name, manager in managers.items():
        if not name.replace("_", "").replace("-", "").isalnum() or len(name) > 64:
            yield f"{name}: a name may hold letters, digits, _ and - only, at most 64"
        if destinations is None:
            continue
        wanted = manager.destination
        found = destinations.get(wanted)
        if found is None:
            yield f"{name}: no destination {wanted!r}{nearest(wanted, destinations, cutoff=0.5)}"
        elif not isinstance(found, ObjectDestination):
            yield (
                f"{name}: destination {wanted} takes no DICOM objects; name one of kind dicom,"
                " sender or stow"
            )
