"""The reasons for which the settings keep a report from a destination.

One table for the code that sends, requeues, checks and shows.

A destination that would not get the reports of a release is named before the first study comes: see
`refusals`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from hilum.domain import HEAT_MAP, Release, RolloutState, RuleDecision
from hilum.rules import RuleRow
from hilum.settings import Destination, Settings

_NO_HEAT_MAP: Final = "no_heat_map"


@dataclass(frozen=True, slots=True)
class Subject:
    """The properties of a report that the rules use.

    Whether its release is trained, and where its study came from.
    """

    is_trained: bool
    calling_ae_title: str
    peer_address: str


@dataclass(frozen=True, slots=True)
class Cause:
    """One reason of a withheld delivery. `why` and `advice` name the destination as `{name}`.

    `may_be_gone`: False: by the destination's settings alone, nothing that was withheld for this is
    released now.
    """

    reason: str
    holds: Callable[[Destination, Subject], bool]
    may_be_gone: Callable[[Destination], bool]
    why: str
    advice: str


CAUSES: Final = (
    Cause(
        "untrained_weights",
        lambda destination, subject: not (subject.is_trained or destination.accept_untrained),
        lambda destination: destination.accept_untrained,
        "results of untrained weights mean nothing, and {name} does not say accept_untrained",
        "if {name} is a test PACS, set destinations.{name}.accept_untrained = true; else have a"
        " trained release read",
    ),
    Cause(
        "sender_unknown",
        lambda destination, subject: (
            destination.for_sender(subject.peer_address, subject.calling_ae_title) is None
        ),
        lambda _: True,
        "reports go back to the sender, and destinations.{name}.ports names no port for it",
        "name its AE Title and port in destinations.{name}.ports",
    ),
)
BY_REASON: Final[Mapping[str, Cause]] = {cause.reason: cause for cause in CAUSES}


def cause_of(destination: Destination, subject: Subject) -> Cause | None:
    """Return why a report is withheld from a destination that would take it; None: it is not.

    The first cause of the table wins.
    """
    return next((cause for cause in CAUSES if cause.holds(destination, subject)), None)


def advice_of(reason: str, name: str) -> str:
    """Return the remedy for a withheld delivery."""
    return BY_REASON[reason].advice.format(name=name)


@dataclass(frozen=True, slots=True)
class WithholdingCause:
    """Reports that a destination will not get, before they are made.

    `of`: the releases or senders of these reports. `is_all`: the destination would get no other
    report.
    """

    destination: str
    reason: str
    of: tuple[str, ...]
    is_all: bool
    why: str
    advice: str

    @property
    def words(self) -> str:
        """One sentence for people."""
        whose = f" of {', '.join(self.of)}" if self.of else ""
        what = (
            "nothing"
            if self.is_all
            else "no heat maps"
            if self.reason == _NO_HEAT_MAP
            else "no reports"
        )
        return f"gets {what}{whose}: {self.why}"


@dataclass(frozen=True, slots=True)
class _Path:
    """Studies of this sender, read by this release, lead to a destination.

    An empty title stands for any other sender.
    """

    calling_ae_title: str
    release: Release

    @property
    def subject(self) -> Subject:
        return Subject(self.release.is_trained, self.calling_ae_title, "known")


def refusals(
    settings: Settings, releases: Mapping[str, Sequence[Release]]
) -> list[WithholdingCause]:
    """Return the reports that destinations of these settings will not get, in their order.

    `releases`: for each release of the settings those that read in its place: itself, or one that a
    rollout has put or will put there.
    """
    paths = {name: list(_paths(settings, name, releases)) for name in settings.destinations}
    return [
        found
        for name, item in settings.destinations.items()
        for found in _of(settings, name, item, paths[name])
    ]


def in_place(
    settings: Settings, releases: Mapping[str, Release], rollouts: Iterable[Mapping[str, Any]]
) -> dict[str, list[Release]]:
    """For each release of the settings those that read in its place, as `refusals` wants them.

    `rollouts`: rows of the ledger. A candidate counts from its beginning, also as a shadow: once
    promoted, its reports shall arrive.
    """
    named = {
        row["configured"]: (row["serving"], row["candidate"])
        for row in rollouts
        if row["state"] != RolloutState.CLOSED
    }
    reading = {name: named.get(name, (name,)) for name in settings.active_releases}
    return {
        name: [releases[item] for item in dict.fromkeys(read) if item in releases]
        for name, read in reading.items()
    }


def _paths(
    settings: Settings, name: str, releases: Mapping[str, Sequence[Release]]
) -> Iterator[_Path]:
    for calling, decision in _decisions(settings):
        handling = settings.handling(decision)
        if name in handling.destinations:
            yield from (
                _Path(calling, item)
                for read in handling.releases
                for item in releases.get(read, ())
            )


def _decisions(settings: Settings) -> Iterator[tuple[str, RuleDecision | None]]:
    """Yield the decisions that the rules may make, each with a Calling AE Title."""
    calling = dict.fromkeys(["", *settings.receive.calling_ae_titles, *settings.senders])
    if settings.rule_table is None:
        yield from ((title, None) for title in calling)
        return
    found = settings.rule_table.reachable(list(calling), settings.receive.ae_titles)
    met = {(title, row.decision) for title, row in found}
    seen = {decision for _, decision in met}
    # A rule may name a title, or a pattern of titles, that stands nowhere else. One that names none
    # and was not met is never reached.
    others = (
        (_title_of(row), row.decision)
        for row in settings.rule_table.rows
        if any(item.name == "calling" for item in row.conditions)
    )
    yield from sorted(met, key=lambda item: (item[1].rule, item[0]))
    yield from (item for item in others if item[1] not in seen)


def _title_of(row: RuleRow) -> str:
    """Return a Calling AE Title that a rule names; empty: a pattern, or none."""
    named = [title for item in row.conditions if item.name == "calling" for title in item.titles]
    return next((title for title in named if not set(title) & set("*?\\")), "")


def _of(
    settings: Settings, name: str, destination: Destination, paths: Sequence[_Path]
) -> Iterator[WithholdingCause]:
    if not paths:
        why = (
            "no rule's destinations name it (nor a sender's, nor a route's), and each study has one"
        )
        yield WithholdingCause(
            name,
            "no_study",
            (),
            is_all=True,
            why=why,
            advice=f"name {name} there, or take [destinations.{name}] out",
        )
        return
    for cause in CAUSES:
        kept = [
            path
            for path in paths
            if cause.holds(destination, path.subject) and _is_certain(cause, path)
        ]
        if kept:
            of = tuple(dict.fromkeys(_whose(cause, path) for path in kept))
            is_all = len(kept) == len([path for path in paths if _is_certain(cause, path)])
            yield WithholdingCause(
                name,
                cause.reason,
                of,
                is_all,
                cause.why.format(name=name),
                cause.advice.format(name=name),
            )
    yield from _heat_maps(settings, name, destination, paths)


def _is_certain(cause: Cause, path: _Path) -> bool:
    """Return whether the cause can be known: it cannot for a sender outside the settings."""
    return cause.reason != "sender_unknown" or bool(path.calling_ae_title)


def _whose(cause: Cause, path: _Path) -> str:
    return path.calling_ae_title if cause.reason == "sender_unknown" else path.release.id


def _heat_maps(
    settings: Settings, name: str, destination: Destination, paths: Sequence[_Path]
) -> Iterator[WithholdingCause]:
    """A heat map that is asked for and never drawn.

    It matters most where nothing else is asked for.
    """
    if HEAT_MAP.key not in destination.documents:
        return
    is_all = destination.documents == (HEAT_MAP.key,)
    if settings.report.intended_use == "triage":
        why = "it asks for heat maps, and report.intended_use is triage"
        yield WithholdingCause(
            name,
            _NO_HEAT_MAP,
            (),
            is_all,
            why,
            'set documents = ["sr"] there, or another report.intended_use',
        )
        return
    without = tuple(dict.fromkeys(path.release.id for path in paths if not path.release.has_cam))
    if without:
        every = is_all and all(not path.release.has_cam for path in paths)
        why = "it asks for heat maps, and these releases have no class activation maps"
        yield WithholdingCause(
            name,
            _NO_HEAT_MAP,
            without,
            every,
            why,
            'set documents = ["sr"] there, or have a release with maps read',
        )
