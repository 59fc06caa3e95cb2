"""`[routes.*]` and `[senders.*]` as rules.

They are the former way to say how studies are handled. The sender goes before the route, setting by
setting, so a sender and a route that meet are a rule of their own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from hilum.settings.rules.rule import RuleEffect, StudyRule
from hilum.settings.studies import Route, Sender
from hilum.toml import inline

DEFAULT: Final = "default"
_OF_SENDERS: Final = (
    "priority",
    "releases",
    "destinations",
    "quiet_seconds",
    "maximum_wait_seconds",
)
_OF_ROUTES: Final = ("priority", "releases", "destinations", "quiet_seconds")
_LIVE: Final = "live"
_MOST_SHOWN: Final = 10


def rules_of(routes: Mapping[str, Route], senders: Mapping[str, Sender]) -> tuple[StudyRule, ...]:
    """Return the rules that say the same; none where these sections say nothing of studies."""
    of_routes = {
        title: said for title, route in routes.items() if (said := _said(route, _OF_ROUTES))
    }
    of_senders = {
        title: said for title, sender in senders.items() if (said := _said(sender, _OF_SENDERS))
    }
    found = tuple(_rules(of_routes, of_senders))
    return (*found, StudyRule(name=DEFAULT)) if found else ()


def _rules(
    routes: Mapping[str, dict[str, Any]], senders: Mapping[str, dict[str, Any]]
) -> Iterator[StudyRule]:
    for calling, of_sender in senders.items():
        for called, of_route in routes.items():
            when = {"calling": _exact(calling), "called": _exact(called)}
            name = _name(f"from {calling} to {called}")
            yield StudyRule(name=name, when=when, then=RuleEffect(**{**of_route, **of_sender}))
        when = {"calling": _exact(calling)}
        yield StudyRule(name=_name(f"from {calling}"), when=when, then=RuleEffect(**of_sender))
    for called, of_route in routes.items():
        when = {"called": _exact(called)}
        yield StudyRule(name=_name(f"to {called}"), when=when, then=RuleEffect(**of_route))


def _said(section: Route | Sender, names: Sequence[str]) -> dict[str, Any]:
    """Return the settings of a section about studies. A route's priority live says nothing."""
    found = {name: getattr(section, name) for name in names}
    is_route = isinstance(section, Route)
    return {
        name: value
        for name, value in found.items()
        if value not in (None, ()) and not (is_route and name == "priority" and value == _LIVE)
    }


def _exact(title: str) -> str:
    """Return a pattern that this AE Title alone matches."""
    return "".join(f"\\{letter}" if letter in "*?" else letter for letter in title)


def _name(text: str) -> str:
    return "".join(letter if letter.isalnum() or letter in " .@_-" else "_" for letter in text)


def as_toml(rules: Sequence[StudyRule]) -> str:
    """Return rules as they stand in a settings file."""
    return "\n".join(line for rule in rules for line in _lines(rule))


def _lines(rule: StudyRule) -> Iterator[str]:
    yield "[[rules]]"
    yield f"name = {inline(rule.name)}"
    if rule.when:
        yield f"when = {inline(rule.when)}"
    then = rule.then.model_dump(mode="json", exclude_defaults=True)
    if then:
        yield f"then = {inline(then)}"
    yield ""


def advice(rules: Sequence[StudyRule]) -> str:
    """Return how to write the former settings as rules."""
    begin = (
        "routes and senders say what is done with studies, which [[rules]] now do"
        " (docs/operate/rules.md). Take priority, releases, destinations, quiet_seconds and"
        " maximum_wait_seconds out of them, and write instead"
    )
    if len(rules) > _MOST_SHOWN:
        return f"{begin} the {len(rules)} rules that `hilum rules show` prints"
    return f"{begin}:\n{as_toml(rules)}"
