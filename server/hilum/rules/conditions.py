"""Conditions of rules: parsed from tables when settings are loaded, then asked of facts.

A condition is a name, the wanted values in words, and two functions. There is no expression
language.
"""

from __future__ import annotations

import fnmatch
import ipaddress
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from hilum.rules.facts import StudyFacts
from hilum.rules.keywords import Attribute, WrongCondition, attribute_of

Values = tuple[str, ...] | tuple[float, ...]
_VIEWS: Final = ("PA", "AP", "LATERAL", "UNKNOWN")
_ABSENT: Final = "absent"
_NOT: Final = "not"
_LIMITS: Final = ("min", "max")


@dataclass(frozen=True, slots=True)
class Condition:
    """One condition. `accepts`: of the values that were found; () where there is none.

    `is_of_patient`: its value is not shown. `tag`: of its attribute; 0: a fact of ours. `titles`:
    the patterns of a condition on an AE Title.
    """

    name: str
    wanted: str
    found: Callable[[StudyFacts], Values]
    accepts: Callable[[Values], bool]
    is_of_patient: bool = False
    tag: int = 0
    titles: tuple[str, ...] = ()

    def holds(self, facts: StudyFacts) -> bool:
        """Return whether the study is as wanted."""
        return self.accepts(self.found(facts))

    @property
    def tags(self) -> tuple[int, ...]:
        """The attributes that it reads."""
        return (self.tag,) if self.tag else ()


@dataclass(frozen=True, slots=True)
class Negation:
    """`not`: holds unless all of these conditions hold."""

    conditions: tuple[Condition, ...]
    name: str = _NOT
    titles: tuple[str, ...] = ()

    def holds(self, facts: StudyFacts) -> bool:
        """Return whether any of its conditions fails."""
        return not all(item.holds(facts) for item in self.conditions)

    @property
    def tags(self) -> tuple[int, ...]:
        """The attributes that it reads."""
        return tuple(tag for item in self.conditions for tag in item.tags)


AnyCondition = Condition | Negation


def parse_conditions(when: Mapping[str, object]) -> tuple[AnyCondition, ...]:
    """Return the conditions of a rule, in their order.

    Raises WrongCondition with all problems, each with what to do.
    """
    found: list[AnyCondition] = []
    problems: list[str] = []
    for name, value in when.items():
        try:
            found.append(_negation(value) if name == _NOT else _condition(name, value))
        except WrongCondition as error:
            problems.append(f"{name}: {error}")
    if problems:
        raise WrongCondition("; ".join(problems))
    return tuple(found)


def _negation(value: object) -> Negation:
    if not isinstance(value, Mapping) or not value:
        raise WrongCondition('must be a table of conditions, such as { Modality = "CT" }')
    if _NOT in value:
        raise WrongCondition("must not hold another `not`: write the conditions outside")
    conditions = parse_conditions(value)
    return Negation(tuple(item for item in conditions if isinstance(item, Condition)))


def _condition(name: str, value: object) -> Condition:
    if name in _OWN:
        return _OWN[name](name, value)
    attribute = attribute_of(name, (*_OWN, _NOT))
    if isinstance(value, Mapping) and _ABSENT in value:
        return _of_absence(attribute, value)
    return (_of_numbers if attribute.is_number else _of_texts)(attribute, value)


def _of_absence(attribute: Attribute, value: Mapping[str, object]) -> Condition:
    wants_absent = value[_ABSENT]
    if len(value) > 1 or not isinstance(wants_absent, bool):
        raise WrongCondition("must be { absent = true } or { absent = false }")
    return Condition(
        attribute.keyword,
        "absent" if wants_absent else "any value",
        attribute_values(attribute),
        lambda values: bool(values) != wants_absent,
        attribute.is_of_patient,
        attribute.tag,
    )


def attribute_values(attribute: Attribute) -> Callable[[StudyFacts], Values]:
    """Return the function that reads an attribute."""
    if attribute.is_number:
        return lambda facts: facts.numbers(attribute)
    return lambda facts: facts.texts(attribute)


def _of_texts(attribute: Attribute, value: object) -> Condition:
    matches = _glob(_patterns(value))
    return Condition(
        attribute.keyword,
        _in_words(value),
        attribute_values(attribute),
        lambda values: any(matches(str(item).casefold()) for item in values),
        attribute.is_of_patient,
        attribute.tag,
    )


def _of_numbers(attribute: Attribute, value: object) -> Condition:
    accepts = _number_test(value)
    return Condition(
        attribute.keyword,
        _in_words(value),
        attribute_values(attribute),
        accepts,
        attribute.is_of_patient,
        attribute.tag,
    )


def _number_test(value: object) -> Callable[[Values], bool]:
    if isinstance(value, Mapping):
        least, most = _limits(value)
        return lambda values: any(least <= float(item) <= most for item in values)
    wanted = {_number(item) for item in _listed(value)}
    return lambda values: any(item in wanted for item in values)


def _limits(value: Mapping[str, object]) -> tuple[float, float]:
    if not value or not set(value) <= set(_LIMITS):
        raise WrongCondition("must be { min = …, max = … }, one of them, or { absent = true }")
    least = _number(value.get("min", float("-inf")))
    most = _number(value.get("max", float("inf")))
    if least > most:
        raise WrongCondition("min is above max, so nothing is between them")
    return least, most


def _number(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise WrongCondition(f"is a number: write it without quotes (got {value!r})")
    return float(value)


def _titles(name: str, value: object) -> Condition:
    patterns = _patterns(value)
    matches = _glob(patterns, is_folded=False)
    attribute = f"{name}_ae_title"
    return Condition(
        name,
        _in_words(value),
        lambda facts: (getattr(facts, attribute),),
        lambda values: matches(str(values[0])),
        titles=patterns,
    )


def _peer(name: str, value: object) -> Condition:
    networks = [_network(item) for item in _patterns(value)]

    def accepts(values: Values) -> bool:
        try:
            address = ipaddress.ip_address(str(values[0]))
        except ValueError:
            return False
        return any(address in network for network in networks)

    return Condition(name, _in_words(value), lambda facts: (facts.peer_address,), accepts)


def _network(text: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network:
    try:
        return ipaddress.ip_network(text)
    except ValueError as error:
        raise WrongCondition(f"{error}; write an address or a range, as 10.1.0.0/16") from error


def _view(name: str, value: object) -> Condition:
    wanted = _patterns(value)
    if unknown := [item for item in wanted if item not in _VIEWS]:
        raise WrongCondition(f"no view {unknown[0]!r}; there are {', '.join(_VIEWS)}")
    return Condition(
        name,
        _in_words(value),
        lambda facts: (facts.view,),
        lambda values: values[0] in wanted,
    )


def _age(name: str, value: object) -> Condition:
    if not isinstance(value, Mapping):
        raise WrongCondition("must be { min = …, max = … }, in years, or { absent = true }")
    if _ABSENT in value:
        wants_absent = value[_ABSENT]
        if len(value) > 1 or not isinstance(wants_absent, bool):
            raise WrongCondition("must be { absent = true } or { absent = false }")
        words = "absent" if wants_absent else "any age"
        return Condition(
            name, words, _age_of, lambda values: bool(values) != wants_absent, is_of_patient=True
        )
    words = f"{_in_words(value)} years"
    return Condition(name, words, _age_of, _number_test(value), is_of_patient=True)


def _age_of(facts: StudyFacts) -> Values:
    age = facts.age
    return () if age is None else (age,)


def _campaign(name: str, value: object) -> Condition:
    if not isinstance(value, bool):
        raise WrongCondition("must be true (a campaign fetched it) or false (a live sender)")
    return Condition(
        name,
        _in_words(value),
        lambda facts: ("true" if facts.is_of_campaign else "false",),
        lambda values: values[0] == _in_words(value),
    )


_OWN: Final[Mapping[str, Callable[[str, object], Condition]]] = {
    "calling": _titles,
    "called": _titles,
    "peer": _peer,
    "view": _view,
    "age": _age,
    "campaign": _campaign,
}
OWN_FACTS: Final = tuple(_OWN)
"""Facts of ours that a rule may name, beside attributes."""


def _patterns(value: object) -> tuple[str, ...]:
    found = tuple(_listed(value))
    for item in found:
        if not isinstance(item, str):
            raise WrongCondition(f"is text: write it in quotes (got {item!r})")
        if not item.strip():
            raise WrongCondition("must not be blank; write { absent = true } for a missing value")
    return tuple(str(item).strip() for item in found)


def _listed(value: object) -> Sequence[object]:
    if isinstance(value, Mapping):
        raise WrongCondition("takes a text, a list of texts or { absent = true }")
    found = value if isinstance(value, list | tuple) else (value,)
    if not found:
        raise WrongCondition("must not be an empty list: leave the condition out")
    return found


def _glob(patterns: Iterable[str], *, is_folded: bool = True) -> Callable[[str], bool]:
    """Return a test: `*` any letters, `?` one letter, a backslash before them the sign itself."""
    found = [item.casefold() if is_folded else item for item in patterns]
    compiled = re.compile("|".join(fnmatch.translate(_for_fnmatch(item)) for item in found))
    return lambda text: compiled.match(text) is not None


def _for_fnmatch(pattern: str) -> str:
    """Return the pattern for fnmatch, for which a bracket begins a set."""
    return "".join(_signs(pattern))


def _signs(pattern: str) -> Iterator[str]:
    letters = iter(pattern)
    for letter in letters:
        if letter == "\\":
            letter = next(letters, "\\")  # noqa: PLW2901 - the sign behind the backslash
            yield f"[{letter}]" if letter in "*?[" else letter
        else:
            yield "[[]" if letter == "[" else letter


def _in_words(value: object) -> str:
    if isinstance(value, Mapping):
        least, most = (value.get(name) for name in _LIMITS)
        if least is None:
            return f"{most} or less"
        return f"{least} or more" if most is None else f"{least} to {most}"
    return json.dumps(value, ensure_ascii=False)
