"""Settings from environment variables, `HILUM_<SECTION>__<NAME>`, over those of the file.

Names of sections and settings may stand in any case. Names that people give (a destination's, an AE
Title) keep theirs: a variable means the one that is there already and differs in case only, else a
new one, as it is written.
"""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, get_args, get_origin

from hilum.settings.fields import Section
from hilum.settings.tables import fields_of, models_of

Place = tuple[str, ...]

_PREFIX: Final = "HILUM_"
_BETWEEN: Final = "__"
_SERVICE: Final = re.compile(r"HILUM_(\w+_)?(SERVICE_(HOST|PORT\w*)|PORT_\d+_\w+)")
_LINK: Final = re.compile(r"(tcp|udp|sctp)://")
_NO_SETTINGS: Final = frozenset({"HILUM_CONFIG", "HILUM_TEST_DATA"})


@dataclass(frozen=True, slots=True)
class UnknownVariable:
    """A variable that names no setting: where it leads, and the names that are known there."""

    variable: str
    place: Place
    known: list[str]


@dataclass(frozen=True, slots=True)
class Overlaid:
    """The settings of file and environment together."""

    content: dict[str, Any]
    variables: dict[Place, str] = field(default_factory=dict)
    """The variable that has given the value at a place."""
    unknown: list[UnknownVariable] = field(default_factory=list)
    unreadable: list[str] = field(default_factory=list)
    """Sentences. They show no table: one may hold secrets."""


def overlay(
    content: Mapping[str, Any], model: type[Section], environment: Mapping[str, str]
) -> Overlaid:
    """Return `content` of a file for `model`, with the values of the variables over it.

    That of a single setting wins over that of its table.
    """
    found = Overlaid(copy.deepcopy(dict(content)))
    variables = [
        name
        for name, value in environment.items()
        if name.upper().startswith(_PREFIX) and not _is_no_setting(name, value)
    ]
    for variable in sorted(variables, key=lambda name: (name.count(_BETWEEN), name)):
        target = _target(variable, found.content, model)
        if isinstance(target, UnknownVariable):
            found.unknown.append(target)
            continue
        place, kind = target
        try:
            _put(found, place, _value(environment[variable], kind), variable)
        except ValueError:
            found.unreadable.append(
                f"{variable}: {_as_json(variable, environment[variable], kind)}"
            )
    return found


def _is_no_setting(name: str, value: str) -> bool:
    """Return whether a variable is no setting.

    Kubernetes gives each pod beside a Service named hilum (or hilum-something) its addresses.
    """
    is_link = _SERVICE.fullmatch(name) or (name.endswith("_PORT") and _LINK.match(value))
    return name.upper() in _NO_SETTINGS or (_BETWEEN not in name and bool(is_link))


def _target(
    variable: str, content: Mapping[str, Any], model: type[Section]
) -> tuple[Place, object] | UnknownVariable:
    """The place of a variable's value, and its type."""
    place: Place = ()
    kind: object = model
    here: object = content
    for part in variable[len(_PREFIX) :].split(_BETWEEN):
        name = part.lower()
        if get_origin(kind) is Mapping:
            name = _as_it_stands(part, here)
            kind = get_args(kind)[1]
        elif name in (known := fields_of(kind)):
            kind = known[name].annotation
        else:
            return UnknownVariable(variable, (*place, name), list(known))
        place = (*place, name)
        here = here.get(name) if isinstance(here, Mapping) else {}
    return place, kind


def _as_it_stands(name: str, here: object) -> str:
    """The name that is there already: as HILUM_DESTINATIONS__PACS__… for [destinations.pacs].

    Two such would send each report twice.
    """
    there = list(here) if isinstance(here, Mapping) else []
    alike = [other for other in there if other.casefold() == name.casefold()]
    return name if name in there or len(alike) != 1 else alike[0]


def _value(text: str, kind: object) -> object:
    """Raises ValueError where a list or a table is not JSON of one."""
    wanted = (
        list
        if get_origin(kind) is tuple
        else dict
        if models_of(kind) or get_origin(kind) is Mapping
        else None
    )
    if wanted is None:
        return text
    value = json.loads(text)
    if not isinstance(value, wanted):
        raise ValueError(kind)  # noqa: TRY004 - as json.loads says it
    return value


def _as_json(variable: str, text: str, kind: object) -> str:
    if get_origin(kind) is tuple:
        words = [word.strip(" []'\"") for word in text.split(",")]
        return f"a list is written as JSON, here perhaps '{json.dumps(words, ensure_ascii=False)}'"
    return (
        f"names a whole table, which is written as JSON; for one setting of it: {variable}__<NAME>"
    )


def _put(found: Overlaid, place: Place, value: object, variable: str) -> None:
    here: Any = found.content
    for name in place[:-1]:
        here = here.setdefault(name, {})
        if not isinstance(here, dict):
            return  # no table, but in the file: which is said of the file
    if not isinstance(value, dict):
        here[place[-1]] = value
        found.variables[place] = variable
        return
    here.setdefault(place[-1], {})
    for name, below in value.items():
        _put(found, (*place, name), below, variable)
