"""Rollout verbs for REST and the command line.

They are checked against settings, manifests and built trees first.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hilum.assemble.agreement import agreements
from hilum.domain import Rollout, RolloutMode, alias_of
from hilum.errors import ConfigurationError
from hilum.models.build.build import is_built
from hilum.models.known_answers.canary import read_canary
from hilum.models.manifest.catalogue import load_manifests
from hilum.models.manifest.manifest import Manifest
from hilum.settings import Settings
from hilum.store.audit.log import Deed
from hilum.store.queries.views import LedgerViews
from hilum.store.rollouts.manifests import KeptManifest, edited_in_words
from hilum.store.rollouts.rollouts import CannotRollOut, RolloutRequest, Rollouts

STUDIES_COMPARED = 10_000


@dataclass(frozen=True, slots=True)
class RolloutVerbs:
    """The rollouts of one installation. Every verb raises CannotRollOut with the remedy."""

    settings: Settings
    rollouts: Rollouts
    views: LedgerViews

    def start(
        self, alias: str, release: str, order: RolloutRequest, who: str, deed: Deed | None = None
    ) -> Rollout:
        """Load and verify a release beside the one that reads; then follow `order`."""
        configured = self._configured(alias)
        self._require_free(configured, release)
        self.require_unedited(release)
        found = self.require_built(release)
        return self.rollouts.start(
            configured, KeptManifest(release, found.release.digest, found.text), order, who, deed
        )

    def promote(
        self, alias: str, fraction: float | None, who: str, deed: Deed | None = None
    ) -> Rollout:
        """Go one step further: a canary of this fraction, or all new studies."""
        order = RolloutRequest(
            RolloutMode.SWITCH if fraction is None else RolloutMode.CANARY, fraction
        )
        return self.rollouts.promote(alias, order, who, deed)

    def roll_back(
        self, alias: str, who: str, *, is_pending: bool = False, deed: Deed | None = None
    ) -> Rollout:
        """Go one step back; `is_pending`: with the studies that are not reported yet."""
        return self.rollouts.roll_back(alias, who, is_pending=is_pending, deed=deed)

    def stop(self, alias: str, who: str, deed: Deed | None = None) -> Rollout:
        """End the rollout; the serving release continues alone."""
        return self.rollouts.stop(alias, who, deed)

    def require_unedited(self, release: str) -> None:
        """Raise CannotRollOut for a release in use whose manifest has changed since."""
        if self.is_edited(release):
            raise CannotRollOut(edited_in_words(release))

    def is_edited(self, release: str) -> bool:
        """Return whether the manifest of a release in use has changed.

        Raises CannotRollOut where it cannot be read.
        """
        kept = self.rollouts.manifest(release)
        return (
            kept is not None
            and kept.is_proved
            and kept.digest != self._manifest(release).release.digest
        )

    def require_built(self, release: str) -> Manifest:
        """Return the manifest; raise CannotRollOut for a release that could not be loaded now."""
        found = self._manifest(release)
        settings = self.settings
        try:
            read_canary(found.release, settings.built_dir)
        except ConfigurationError as error:
            raise CannotRollOut("; ".join(error.problems)) from error
        if not settings.triton.addresses and not is_built(found.release, settings.built_dir):
            raise CannotRollOut(
                f"{release} is not built for the embedded Triton: run `hilum models build"
                f" {release}`"
            )
        return found

    def _manifest(self, release: str) -> Manifest:
        try:
            catalogue = load_manifests(self.settings.manifests_dir, [release])
        except ConfigurationError as error:
            raise CannotRollOut("; ".join(error.problems)) from error
        if release not in catalogue:
            raise CannotRollOut(
                f"{release} has no manifest in {self.settings.manifests_dir}; known:"
                f" {', '.join(sorted(catalogue))}"
            )
        return catalogue[release]

    def list(self) -> list[dict[str, Any]]:
        """Return every alias of the settings, and those that were changed before."""
        known = {item["alias"]: item for item in self.views.rollouts()}
        unchanged = {alias_of(name): _unchanged(name) for name in self.settings.active_releases}
        return [known.get(alias) or unchanged[alias] for alias in sorted({*known, *unchanged})]

    def show(self, alias: str) -> dict[str, Any] | None:
        """Return one alias with its history and, while a shadow reads, its agreement.

        None: no such alias.
        """
        found = next((item for item in self.list() if item["alias"] == alias), None)
        if found is None:
            return None
        return {
            **found,
            "events": self.views.rollout_events(alias),
            "comparison": self._comparison(found),
        }

    def _comparison(self, found: dict[str, Any]) -> dict[str, Any] | None:
        pair = self._pair(found)
        if pair is None:
            return None
        compared = self.views.compared(*pair, STUDIES_COMPARED)
        findings = [dataclasses.asdict(item) for item in agreements(compared.said)]
        waiting = sum(compared.states.get(state, 0) for state in ("due", "leased"))
        counts = {
            "compared": compared.states.get("compared", 0),
            "waiting": waiting,
            "failed": compared.states.get("failed", 0),
        }
        return {"release": pair[0], "shadow": pair[1], **counts, "findings": findings}

    def _pair(self, found: dict[str, Any]) -> tuple[str, str] | None:
        """Return the last compared pair: with a candidate, or with its successor.

        Otherwise it is the pair of a release that has read an archive along (`hilum reanalyse
        --shadow`).
        """
        releases = {found["serving"], found["previous"], found["candidate"]} - {None}
        return self.views.last_compared(releases) or self.views.last_read_along(releases)

    def _configured(self, alias: str) -> str:
        names = [name for name in self.settings.active_releases if alias_of(name) == alias]
        if len(names) == 1:
            return names[0]
        if names:
            raise CannotRollOut(
                f"the settings name {' and '.join(names)}: leave one of them, then roll out"
            )
        known = ", ".join(sorted({alias_of(name) for name in self.settings.active_releases}))
        raise CannotRollOut(
            f"the settings name no release of {alias!r}; they name releases of {known}"
        )

    def _require_free(self, configured: str, release: str) -> None:
        """Raise CannotRollOut if one release would read a study twice."""
        taken = set(self.settings.active_releases) - {configured}
        taken |= {
            name
            for item in self.rollouts.all()
            if item.alias != alias_of(configured)
            for name in item.releases
        }
        if release in taken:
            raise CannotRollOut(f"{release} reads images already, under another alias")


def in_words(item: Mapping[str, Any]) -> str:
    """Return the state of an alias, an item of `list`, in one line."""
    words = [item["state"], f"{item['serving']} reads new studies"]
    if item["candidate"]:
        share = f" {item['fraction']:.0%}" if item["fraction"] else ""
        words.append(f"{item['candidate']} as {item['mode']}{share}")
    if item["previous"]:
        words.append(f"{item['previous']} is kept for rollback")
    if item["serving"] != item["configured"]:
        words.append(f"the settings still name {item['configured']}")
    return f"{item['alias']}: {', '.join(words)}{'. ' + item['problem'] if item['problem'] else ''}"


def _unchanged(configured: str) -> dict[str, Any]:
    nothing = dict.fromkeys(
        ("previous", "candidate", "mode", "fraction", "problem", "changed_at", "changed_by")
    )
    return {
        "alias": alias_of(configured),
        "configured": configured,
        "serving": configured,
        "state": "done",
        **nothing,
    }
