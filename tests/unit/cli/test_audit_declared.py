"""Each route and each command declares its verb, or why it has none."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from typer import Typer

from hilum.cli import app
from hilum.verbs import MEANINGS, NoVerb, Verb, verb_of
from tests.support.server.api_client import open_rig

# Open to everybody who reaches the port, or the shape of the API: they name no study.
_OPEN = {"/health/live", "/health/ready", "/metrics", "/openapi.json", "/docs", "/icon.svg"}
# Written by the server itself, and by what guards the web.
_BY_SERVER = {Verb.STOP, Verb.LOCK_OUT, Verb.FORGET_STUDIES}


def endpoints(routes: Any) -> Iterator[tuple[str, Callable[..., Any]]]:
    for route in routes:
        if hasattr(route, "effective_candidates"):
            yield from endpoints(route.effective_candidates())
        else:
            yield route.path, route.endpoint


def commands(group: Typer, name: str = "hilum") -> Iterator[tuple[str, Callable[..., Any]]]:
    for command in group.registered_commands:
        assert command.callback is not None
        yield (
            f"{name} {command.name or command.callback.__name__.replace('_', '-')}",
            command.callback,
        )
    for inner in group.registered_groups:
        assert inner.typer_instance is not None
        yield from commands(inner.typer_instance, f"{name} {inner.name}")


@pytest.fixture
def routes(tmp_path: Path) -> dict[str, Callable[..., Any]]:
    with open_rig(tmp_path, store=object()) as rig:  # type: ignore[arg-type]
        return dict(endpoints(rig.client.app.routes))  # type: ignore[attr-defined]


def test_every_route_declares_its_verb(routes: dict[str, Callable[..., Any]]) -> None:
    assert {path for path, endpoint in routes.items() if verb_of(endpoint) is None} == _OPEN
    assert {
        "/api/v1/erase",
        "/dicom-web/studies",
        "/studies/{study_instance_uid}/images/{sop_instance_uid}.png",
    } <= set(routes)


def test_every_command_declares_its_verb() -> None:
    found = dict(commands(app))
    assert {name for name, command in found.items() if verb_of(command) is None} == set()
    assert {"hilum erase", "hilum rollout start", "hilum audit"} <= set(found)


def test_every_verb_is_declared_somewhere(routes: dict[str, Callable[..., Any]]) -> None:
    declared = {verb_of(each) for each in (*routes.values(), *dict(commands(app)).values())}
    assert set(Verb) - declared == _BY_SERVER


def test_what_declares_none_says_why(routes: dict[str, Callable[..., Any]]) -> None:
    reasons = [verb_of(each) for each in (*routes.values(), *dict(commands(app)).values())]
    assert all(reason.why for reason in reasons if isinstance(reason, NoVerb))


def test_a_route_that_only_reads_declares_a_look_and_one_that_changes_does_not(
    tmp_path: Path,
) -> None:
    with open_rig(tmp_path) as rig:
        document = rig.client.app.openapi()["paths"]  # type: ignore[attr-defined]
        found = dict(endpoints(rig.client.app.routes))  # type: ignore[attr-defined]
    for path, methods in document.items():
        verb = verb_of(found[path])
        if isinstance(verb, Verb) and verb is not Verb.READ_AUDIT:
            assert MEANINGS[verb].is_look == ("get" in methods), path
