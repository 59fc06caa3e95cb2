"""The releases that torchxrayvision published.

Files, label orders and operating points are in `torchxrayvision.toml`.
"""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from hilum.errors import ConfigurationError
from hilum.models.manifest import terminology
from hilum_preprocessing.spec.fields import nearest

LABELS: Final = "torchxrayvision_18"
_TABLE: Final = Path(__file__).with_name("torchxrayvision.toml")


@dataclass(frozen=True, slots=True)
class Published:
    """One release.

    `labels` and `thresholds` are in the order of the outputs. "" was not trained, nan has no
    operating point.
    """

    name: str
    architecture: str
    recipe: str
    address: str
    trained_on: str
    labels: tuple[str, ...]
    thresholds: tuple[float, ...]

    @property
    def file(self) -> str:
        """The name of the file as it was published."""
        return self.address.rpartition("/")[2]


@functools.cache
def releases() -> Mapping[str, Published]:
    """Return the releases by torchxrayvision's names."""
    table = tomllib.loads(_TABLE.read_text(encoding="utf-8"))
    order = [label for label, _ in terminology.load().label_sets[LABELS].labels]
    return {
        name: Published(
            name=name,
            architecture=row["architecture"],
            recipe=row["recipe"],
            address=table["address"] + row["file"],
            trained_on=row["trained_on"],
            labels=tuple("" if label in row["untrained"] else label for label in order),
            thresholds=tuple(row["thresholds"]),
        )
        for name, row in table["releases"].items()
    }


def named(name: str | None, source: Path) -> Published:
    """Return the release with this name, else the one whose file has this name.

    Raises ConfigurationError, which lists the releases.
    """
    known = releases()
    if name is None:
        of_file = [each for each in known.values() if each.file == source.name]
        if of_file:
            return of_file[0]
        raise ConfigurationError(
            [
                (
                    f"{source.name} is no file name of torchxrayvision's: say with --published"
                    f" which release it is: {', '.join(known)}"
                )
            ]
        )
    if name not in known:
        raise ConfigurationError([f"torchxrayvision has no {name!r}{nearest(name, known)}"])
    return known[name]
