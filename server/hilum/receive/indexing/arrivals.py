"""The handling of received instances: the rules decide by the first image of their study."""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from hilum.domain import Instance, KnownStudy, Priority, RuleDecision
from hilum.rules import StudyFacts, facts_of
from hilum.settings import Handling, Settings
from hilum.store.intake.received import Arrival

Known = Callable[[Collection[str]], Mapping[str, KnownStudy]]


@dataclass(frozen=True, slots=True)
class _Decided:
    """The decision about a study. `is_new`: made just now, because its row had none."""

    decision: RuleDecision | None
    is_new: bool = False


def arrivals_of(
    instances: Sequence[Instance],
    settings: Settings,
    known: Known,
    wanted: Callable[[Collection[str]], Mapping[str, Mapping[str, int]]] = lambda _: {},
) -> list[Arrival]:
    """Return the arrivals, in the order of the instances.

    `known` returns, for studies with a row, their sender and the decision. `wanted` returns the
    campaigns that wait for an image, by release; it is asked for images that came to an AE
    Title of campaigns alone.
    """
    titles = settings.campaign_titles
    live = [item for item in instances if item.called_ae_title not in titles]
    fetched = [item.sop_instance_uid for item in instances if item.called_ae_title in titles]
    campaigns = wanted(fetched) if fetched else {}
    decided = _decided(live, settings, known)
    handling_of = functools.cache(settings.handling)  # a batch has few decisions
    arrivals = list[Arrival]()
    for instance in instances:
        uid = instance.study_instance_uid
        if instance.called_ae_title in titles:
            of_campaign = campaigns.get(instance.sop_instance_uid, {})
            arrivals.append(_fetched(instance, of_campaign, settings))
        else:
            found = decided[uid]
            arrival = _arrival(instance, handling_of(found.decision), found, settings)
            arrivals.append(replace(arrival, takes_over=titles))
    return arrivals


def _decided(live: Sequence[Instance], settings: Settings, known: Known) -> dict[str, _Decided]:
    """Return the decision about each study.

    A study that only campaigns have brought is decided by its first live image.
    """
    found: Mapping[str, KnownStudy] = {}
    if live and (settings.rule_table is not None or settings.sources):
        found = known({instance.study_instance_uid for instance in live})
    decided: dict[str, _Decided] = {}
    for instance in live:
        uid = instance.study_instance_uid
        if uid not in decided:
            decided[uid] = _of_study(instance, found.get(uid), settings)
    return decided


def _of_study(instance: Instance, known: KnownStudy | None, settings: Settings) -> _Decided:
    """Return the decision about the study of an image, the first of it in this batch.

    A study from before there were rules is decided by its first sender and this header.
    """
    if known is None or known.called_ae_title in settings.campaign_titles:
        facts = facts_of(instance)
    elif known.decision is not None:
        return _Decided(known.decision)
    else:
        facts = StudyFacts(
            known.calling_ae_title,
            known.called_ae_title,
            known.peer_address,
            header=instance.header,
            transfer_syntax_uid=instance.transfer_syntax_uid,
        )
    decision = _decide(facts, settings)
    # Without rules no row was asked for: a decision that stands in one is no contradiction.
    return _Decided(decision, is_new=decision is not None)


def _decide(facts: StudyFacts, settings: Settings) -> RuleDecision | None:
    return None if settings.rule_table is None else settings.rule_table.decide(facts)


def _fetched(instance: Instance, campaigns: Mapping[str, int], settings: Settings) -> Arrival:
    """Return the arrival of an image that came to an AE Title of campaigns.

    Its campaigns name the releases. If none waits for it, it is kept and not read.
    """
    decision = _decide(facts_of(instance, is_of_campaign=True), settings)
    arrival = _arrival(instance, settings.handling(decision), _Decided(decision), settings)
    return replace(
        arrival,
        priority=Priority.REANALYSIS,
        releases=tuple(sorted(campaigns)),
        campaigns=campaigns,
    )


def _arrival(
    instance: Instance, handling: Handling, decided: _Decided, settings: Settings
) -> Arrival:
    return Arrival(
        instance=instance,
        priority=Priority[handling.priority.upper()],
        releases=handling.releases,
        quiet_seconds=handling.quiet_seconds,
        maximum_wait_seconds=handling.maximum_wait_seconds,
        # of this sender, not of the study's: this one brings the header
        may_correct=settings.sender(instance.calling_ae_title).may_correct,
        decision=decided.decision,
        is_deciding=decided.is_new,
        not_analysed=handling.not_analysed,
    )
