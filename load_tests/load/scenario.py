"""A scenario is a TOML file: when studies come, which, how they are sent, what Hilum is set to, and what must hold.

Unknown keys are refused with the nearest known one.
"""

from __future__ import annotations

import difflib
import tomllib
from pathlib import Path
from typing import Any, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    PositiveFloat,
    PositiveInt,
    ValidationError,
    field_validator,
)

from load_tests.load.arrivals import Schedule
from load_tests.load.figures import FIGURES
from testing.phantoms.pixel_codecs import SYNTAXES

SCENARIOS = Path(__file__).parents[1] / "scenarios"


class ScenarioError(Exception):
    """The scenario cannot be run as it is written; the text says what to change."""


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Arrivals(_Table):
    """When studies start.

    With `unit = "saturation"` rates are multiples of what this Hilum was found to take, in the same
    run, first.
    """

    kind: Literal["constant", "poisson", "bursts", "ramp"] = "constant"
    unit: Literal["studies/s", "saturation"] = "studies/s"
    rate: PositiveFloat = 1.0
    last_rate: PositiveFloat = 1.0  # ramp
    burst: PositiveInt = 10  # bursts: studies at one moment
    seed: int = 1  # poisson

    def schedule(self, seconds: float, unit_rate: float = 1.0) -> Schedule:
        """Intended starts; rates times `unit_rate`."""
        rate = self.rate * unit_rate
        last: dict[str, tuple[float, ...]] = {"poisson": (self.seed,), "bursts": (self.burst,)}
        if self.kind == "ramp":
            return "ramp", (rate, self.last_rate * unit_rate, seconds)
        return self.kind, (rate, seconds, *last.get(self.kind, ()))


class Sender(_Table):
    """How studies are sent."""

    processes: PositiveInt = 1
    associations: PositiveInt = 4  # of each process, and for each Calling AE Title
    keeps_associations: bool = True  # False: an association for each study, as many modalities do
    patience_seconds: float = (
        0.0  # a study that could not start for so long is given up, and counted; 0: never
    )
    timeout_seconds: PositiveFloat = 60.0


class Kind(_Table):
    """A kind of study in the mix: phantoms, or the user's files."""

    weight: PositiveFloat = 1.0
    calling_ae_title: str = Field("LOADGEN", min_length=1, max_length=16)
    images: PositiveInt = 2
    modality: Literal["DX", "CR", "SC"] = "DX"
    transfer_syntax: str = "ExplicitVRLittleEndian"
    rows: PositiveInt = 2500
    columns: PositiveInt = 2048
    bits: PositiveInt = Field(12, le=16)
    variants: PositiveInt = 2  # different pictures
    files: tuple[Path, ...] = ()  # folders or files; then the rest is theirs

    @field_validator("transfer_syntax")
    @classmethod
    def _known(cls, name: str) -> str:
        if name not in SYNTAXES:
            raise ValueError(f"one of {', '.join(SYNTAXES)} is needed{_nearest(name, SYNTAXES)}")
        return name


class Scenario(_Table):
    """The whole file. `name` and `shows` come from the file's name and its first comment."""

    name: str
    shows: str
    # DenseNet-121 with untrained weights, in bf16 or f32, what this CPU does best; or name@version
    release: str = "bundled"
    seconds: PositiveFloat = 60.0
    drain_seconds: PositiveFloat = (
        60.0  # how long the last reports may take, the quiet period apart
    )
    probe_seconds: float = 0.0  # find the saturation first, with a bounded number of open studies
    stop_behind_seconds: float = (
        0.0  # end the load early when a report is so late, the quiet period apart; 0: never
    )
    # after the load a study each second, at most so long, until latency is that of an idle street
    recovery_seconds: float = 0.0
    recovered_below_seconds: PositiveFloat = 0.6
    arrivals: Arrivals = Arrivals()
    sender: Sender = Sender()
    mix: tuple[Kind, ...] = (Kind(),)
    hilum: dict[str, dict[str, Any]] = {}  # settings of the Hilum that is started
    goals: dict[str, float] = {}

    @field_validator("goals")
    @classmethod
    def _measured(cls, goals: dict[str, float]) -> dict[str, float]:
        unknown = next((name for name in goals if name not in FIGURES), None)
        if unknown is not None:
            raise ValueError(f"no figure is called {unknown}{_nearest(unknown, FIGURES)}")
        return goals

    @property
    def quiet_seconds(self) -> float:
        """Quiet period of the Hilum that is started."""
        return float(self.hilum.get("studies", {}).get("quiet_seconds", 1.0))


def read(name: str) -> Scenario:
    """A scenario by its name, or by the path of its file. Raises ScenarioError."""
    path = Path(name) if name.endswith(".toml") else SCENARIOS / f"{name}.toml"
    if not path.is_file():
        raise ScenarioError(
            f"no scenario {name!r}{_nearest(name, names())}; there are {', '.join(names())}"
        )
    return parse(path.stem, path.read_text(encoding="utf-8"))


def parse(name: str, text: str) -> Scenario:
    """From the text of a file. Raises ScenarioError, with every mistake."""
    shows = text.partition("\n")[0].removeprefix("#").strip()
    try:
        return Scenario.model_validate({"name": name, "shows": shows, **tomllib.loads(text)})
    except tomllib.TOMLDecodeError as error:
        raise ScenarioError(f"{name}: {error}") from error
    except ValidationError as error:
        raise ScenarioError(
            "\n".join(f"{name}: {_sentence(dict(mistake))}" for mistake in error.errors())
        ) from error


def names() -> list[str]:
    """All scenarios of this folder."""
    return sorted(path.stem for path in SCENARIOS.glob("*.toml"))


def _sentence(mistake: dict[str, Any]) -> str:
    """One of pydantic's errors in words."""
    place = ".".join(str(part) for part in mistake["loc"])
    if mistake["type"] != "extra_forbidden":
        return f"{place}: {mistake['msg'].removeprefix('Value error, ')}"
    return f"{place} is not known{_nearest(str(mistake['loc'][-1]), _keys_at(mistake['loc'][:-1]))}"


def _keys_at(place: tuple[str | int, ...]) -> list[str]:
    tables: dict[str, type[BaseModel]] = {"arrivals": Arrivals, "sender": Sender, "mix": Kind}
    table = tables[str(place[0])] if place else Scenario
    return list(table.model_fields)


def _nearest(name: str, known: Any) -> str:  # noqa: ANN401 - anything that holds names
    found = difflib.get_close_matches(name, list(known), 1, 0.5)
    return f": did you mean {found[0]}?" if found else ""
