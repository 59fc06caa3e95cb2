"""Published numbers of other systems, and whether a result here may stand beside one of them."""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Final

from hilum.evaluate.protocol.protocol import Protocol

DATA_SETS: Final = {
    "chexpert": "CheXpert",
    "nih": "NIH ChestX-ray14",
    "mimic": "MIMIC-CXR",
    "vindr": "VinDr-CXR",
}


@dataclass(frozen=True, slots=True)
class PublishedValue:
    """A mean AUROC in percent. `protocol`: with which it can be measured; empty: not published.

    `differs`: where the authors' own measurement differs from that protocol; empty: nowhere known.
    """

    dataset: str
    auroc: float
    protocol: str = ""
    differs: str = ""


@dataclass(frozen=True, slots=True)
class LeaderboardRow:
    """One system. `weights`: the file, of `owner`. `missing`: the parts that were not published."""

    system: str
    publication: str
    release: str
    weights: str
    owner: str
    licence: str
    missing: str
    values: tuple[PublishedValue, ...]


@dataclass(frozen=True, slots=True)
class Comparability:
    """A published number beside a result. `reasons`: why it must not be; empty: it may."""

    system: str
    dataset: str
    auroc: float
    reasons: tuple[str, ...]

    @property
    def is_comparable(self) -> bool:
        """Whether both are of the same cases, classes and rules."""
        return not self.reasons


@functools.cache
def leaderboard() -> tuple[LeaderboardRow, ...]:
    """Return all rows."""
    text = (files("hilum.evaluate.protocol") / "leaderboard.toml").read_text("utf-8")
    return tuple(
        LeaderboardRow(
            **{key: value for key, value in row.items() if key != "values"},
            values=tuple(PublishedValue(**value) for value in row["values"]),
        )
        for row in tomllib.loads(text)["rows"]
    )


def comparability(protocol: Protocol, deviations: Sequence[str]) -> list[Comparability]:
    """Compare with each published number of the data set.

    `deviations`: where this evaluation left the protocol.
    """
    found = []
    for row in leaderboard():
        for value in row.values:
            if value.dataset != protocol.dataset:
                continue
            reasons = [*_reasons(protocol, value), *deviations]
            found.append(Comparability(row.system, value.dataset, value.auroc, tuple(reasons)))
    return found


def _reasons(protocol: Protocol, value: PublishedValue) -> list[str]:
    if not value.protocol:
        return [value.differs or "its protocol is not published"]
    if value.protocol != protocol.name:
        return [f"it is a number of {value.protocol}"]
    return [value.differs] if value.differs else []
