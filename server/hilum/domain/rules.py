"""Decisions of the rules about a study."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RuleDecision:
    """The decision at the first image of a study, as its row keeps it.

    `digest`: of all rules as they were. None: as for all studies, now. `destinations` (): none.
    `not_analysed`: the reason why no release reads its images; empty: releases read them. Times in
    seconds.
    """

    rule: str
    digest: str
    priority: str | None = None
    releases: tuple[str, ...] | None = None
    destinations: tuple[str, ...] | None = None
    quiet_seconds: float | None = None
    maximum_wait_seconds: float | None = None
    not_analysed: str = ""


@dataclass(frozen=True, slots=True)
class KnownStudy:
    """The sender of the first image of a study, and the decision by it.

    `decision` None: there were no rules, or the study is older than they are.
    """

    calling_ae_title: str
    called_ae_title: str
    peer_address: str = ""
    decision: RuleDecision | None = None
