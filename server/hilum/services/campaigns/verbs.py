"""The verbs of campaigns for the command line and REST, checked before anything is fetched."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from hilum.domain import ARCHIVE, FILES, PICTURES, Campaign, CampaignOptions
from hilum.services.releases.rollouts import RolloutVerbs
from hilum.settings import Settings
from hilum.store.audit.log import Deed
from hilum.store.campaigns.campaigns import Campaigns
from hilum.store.campaigns.rules import CannotRun
from hilum.store.queries.views import LedgerViews
from hilum.store.rollouts.manifests import KeptManifest
from hilum.store.rollouts.rollouts import CannotRollOut, Rollouts

_NAME: Final = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")
BUILT_IN: Final = (FILES, PICTURES, ARCHIVE)


def require_name(name: str) -> None:
    """Raise CannotRun for a name that would not fit into a label of a metric or a file name."""
    if not _NAME.fullmatch(name):
        raise CannotRun(
            f"{name!r} is no name of a campaign: 1 to 64 small letters, digits, '.', '_' and '-'"
        )


@dataclass(frozen=True, slots=True)
class CampaignVerbs:
    """The campaigns of one installation. Every verb raises CannotRun with the remedy."""

    settings: Settings
    campaigns: Campaigns

    def run(
        self, name: str, release: str, options: CampaignOptions, deed: Deed | None = None
    ) -> Campaign:
        """Begin a planned campaign by a release that could be loaded now."""
        known = self.campaigns.find(name)
        if known is None:
            raise CannotRun(f"there is no campaign {name}: `hilum campaign plan` makes one")
        self._require_source(known)
        return self.campaigns.run(name, release, options, self._manifest(release), deed)

    def change(self, name: str, verb: str, deed: Deed | None = None) -> Campaign:
        """Pause, resume or cancel a campaign."""
        return self.campaigns.change(name, verb, deed)

    def retry(self, name: str, deed: Deed | None = None) -> int:
        """Begin the dead series again, and return their number."""
        return self.campaigns.retry(name, deed)

    def _require_source(self, known: Campaign) -> None:
        if known.source not in BUILT_IN and known.source not in self.settings.sources:
            names = ", ".join(self.settings.sources) or "none"
            raise CannotRun(
                f"the settings have no source {known.source!r} any more; known: {names}"
            )

    def _manifest(self, release: str) -> KeptManifest:
        """Return the manifest of a release that is built. Raises CannotRun."""
        verbs = RolloutVerbs(
            self.settings,
            Rollouts(self.settings.ledger_url),
            LedgerViews(self.settings.ledger_url),
        )
        try:
            verbs.require_unedited(release)
            found = verbs.require_built(release)
        except CannotRollOut as error:
            raise CannotRun(f"{error}") from error
        finally:
            verbs.rollouts.close()
            verbs.views.close()
        # It reads studies under this name from now on, so its manifest never changes.
        return KeptManifest(release, found.release.digest, found.text, is_proved=True)
