"""Settings from a file and from the environment."""

from __future__ import annotations

import contextlib
import json
import os
import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from hilum.errors import ConfigurationError
from hilum.settings.environment import Overlaid, overlay
from hilum.settings.renamed import advice_for_setting
from hilum.settings.root import Settings
from hilum.settings.sections import kinds_with, known_names
from hilum_preprocessing.spec.fields import nearest

_SECRETS = {("api", "token"), ("ledger", "url"), ("ledger", "direct_url")}


# The name of a file is no secret.
_SECRET_NAME = re.compile("^(?!.*_files?$).*(token$|password|secret|webhook)", re.IGNORECASE)
_PASSWORD = re.compile("://[^/@]*:[^/@]+@")


def restore(text: str) -> Settings:
    """Settings from `Settings.dump`; the environment is not read again, so all processes agree.

    Raises ConfigurationError for those of another version, as when it was installed over one that
    runs.
    """
    sections: dict[str, Any] = {}
    for section, value in json.loads(text).items():
        try:
            sections[section] = _type_of(section).validate_python(value)
        except (ValidationError, KeyError) as error:
            problem = (
                f"settings: [{section}] is not of this version of Hilum: stop `hilum serve` and"
                " start it again."
            )
            raise ConfigurationError([problem]) from error
    return Settings.model_construct(**sections)


def _type_of(section: str) -> TypeAdapter[Any]:
    kind: Any = Settings.model_fields[section].annotation
    return TypeAdapter(kind)


def find_file(explicit: Path | None) -> Path | None:
    """The settings file: --config, HILUM_CONFIG, ./hilum.toml, /etc/hilum/hilum.toml.

    None: defaults only.
    """
    if explicit is not None:
        return explicit
    if named := os.environ.get("HILUM_CONFIG"):
        return Path(named)
    return next(
        (p for p in (Path("hilum.toml"), Path("/etc/hilum/hilum.toml")) if _is_there(p)), None
    )


def _is_there(file: Path) -> bool:
    """Return whether a file is there.

    False in a folder that this user may not enter, as the home of the caller of
    `sudo -u hilum hilum ...`.
    """
    with contextlib.suppress(PermissionError):
        return file.is_file()
    return False


def load(path: Path | None = None) -> Settings:
    """Settings from the file (see `find_file`) and the environment.

    Raises ConfigurationError with all problems.
    """
    file = find_file(path)
    given = overlay(_content(file) if file else {}, Settings, os.environ)
    problems = [
        f"{item.variable}: {_unknown(item.place, item.known)}" for item in given.unknown
    ] + given.unreadable
    try:
        settings = Settings(**given.content)
    except ValidationError as error:
        raise ConfigurationError(
            [*problems, *(_explain(item, file, given) for item in error.errors())]
        ) from error
    if problems:
        raise ConfigurationError(problems)
    return settings


def secrets_in(file: Path) -> list[str]:
    """Secret settings in a file that others can read: tokens, and passwords, also in an address.

    Raises ConfigurationError.
    """
    return list(_secrets((), _content(file)))


def _secrets(place: tuple[str, ...], value: object) -> Iterator[str]:
    if isinstance(value, Mapping):
        for name, item in value.items():
            yield from _secrets((*place, str(name)), item)
    elif isinstance(value, list):
        for item in value:
            yield from _secrets(place, item)
    elif (
        isinstance(value, str)
        and value
        and (_SECRET_NAME.search(place[-1]) or _PASSWORD.search(value))
    ):
        yield ".".join(place)


def _content(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(
            file.read_text(encoding="utf-8-sig")
        )  # some editors begin a file with a byte order mark
    except OSError as error:
        raise ConfigurationError(
            [f"{file}: {error.strerror}. Give an existing file with --config or HILUM_CONFIG."]
        ) from error
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        raise ConfigurationError(
            [f"{file}: not UTF-8, as TOML has to be (at line {line}). Save it as UTF-8."]
        ) from error
    except tomllib.TOMLDecodeError as error:
        raise ConfigurationError([f"{file}: not valid TOML: {error}"]) from error


def _unknown(place: tuple[str, ...], known: list[str]) -> str:
    if advice := advice_for_setting(place):
        return advice
    if kinds := kinds_with(place):
        return f"only of kind {' or '.join(kinds)}; leave it out, or correct kind"
    return f"unknown setting{nearest(place[-1], known, cutoff=0.5)}"


def _explain(item: Mapping[str, Any], file: Path | None, given: Overlaid) -> str:
    place = tuple(str(part) for part in item["loc"] if part != "[key]")
    where = _origin(place, file, given)
    shown = _by_name(place, given.content)
    if item["type"] == "extra_forbidden":
        return f"{where}{'.'.join(shown)}: {_unknown(place, known_names(place[:-1]))}"
    is_secret = any(
        secret[: len(place)] == place for secret in _SECRETS
    )  # or its section: ledger = "postgresql+psycopg://…"
    value = "" if is_secret or _is_table(item.get("input")) else f" (got {item.get('input')!r})"
    name = f"{'.'.join(shown)}: " if place else ""
    return f"{where}{name}{item['msg'].removeprefix('Value error, ')}{value}"


def _is_table(value: object) -> bool:
    """Return whether a value is a table, or a list of tables."""
    return isinstance(value, dict) or (
        isinstance(value, list) and any(isinstance(item, dict) for item in value)
    )


def _by_name(place: tuple[str, ...], content: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the place, with the name of a rule instead of its number in the list."""
    if len(place) < 2 or place[0] != "rules" or not place[1].isdigit():
        return place
    number = int(place[1])
    rules = content.get("rules", [])
    rule = rules[number] if isinstance(rules, list) and number < len(rules) else None
    name = rule.get("name") if isinstance(rule, dict) else None
    return ("rules", str(name or f"number {number + 1}"), *place[2:])


def _origin(place: tuple[str, ...], file: Path | None, given: Overlaid) -> str:
    """The origin of a wrong value: the variable, else the file."""
    above = (place[:length] for length in range(len(place), 0, -1))
    said = next((given.variables[some] for some in above if some in given.variables), file)
    return f"{said}: " if said else ""
