"""Rules about studies: show, explain, test and replay."""

from __future__ import annotations

import json
import sys
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hilum.cli.frame import (
    Config,
    acting,
    ended,
    explained,
    migrated_settings,
    performs,
    rules_app,
    settings_of,
)
from hilum.settings import Settings
from hilum.timestamps import iso
from hilum.verbs import OF_FILES, NoVerb, Verb
from hilum.verbs import performs as declare_verb

if TYPE_CHECKING:
    from hilum.domain import Study
    from hilum.rules import RuleTable, StudyFacts
    from hilum.services.rules.replay import Replay

AsJson = Annotated[bool, typer.Option("--json", help="JSON instead of lines.")]


@rules_app.command("show")
@declare_verb(NoVerb("it shows settings, and no study"))
def show_rules(config: Config = None) -> None:
    """Print the rules in use as they stand in a settings file.

    Those that routes and senders mean are among them.
    """
    from hilum.settings.rules.former import as_toml  # noqa: PLC0415 - not needed elsewhere

    settings = settings_of(config)
    _table(settings)
    print(as_toml(settings.rules_in_use), end="")


@rules_app.command("explain")
@performs(Verb.READ_STUDY)
def explain_rules(
    subject: Annotated[
        str, typer.Argument(metavar="STUDY|FILE", help="Study Instance UID, or a DICOM file.")
    ],
    config: Config = None,
    calling: Annotated[
        str, typer.Option(help="For a file: the Calling AE Title that would send it.")
    ] = "",
    called: Annotated[
        str | None,
        typer.Option(help="For a file: the Called AE Title. Default: the first of ours."),
    ] = None,
    peer: Annotated[str, typer.Option(help="For a file: the sender's address.")] = "",
    as_json: AsJson = False,
) -> None:
    """Show each rule with each condition: wanted, found, and whether it holds.

    An arrow marks the first that matches. Values of the patient are not shown.
    """
    file = Path(subject)
    if not file.exists():
        _explain_study(subject, migrated_settings(config), as_json=as_json)
        return
    settings = settings_of(config)
    from hilum.services.rules.study_facts import facts_of_file  # noqa: PLC0415 - imports pydicom

    with explained():
        facts = facts_of_file(
            file, calling, called or settings.receive.ae_titles[0], peer, settings
        )
    _print(settings, facts, None, as_json=as_json)


def _explain_study(uid: str, settings: Settings, *, as_json: bool) -> None:
    from hilum.services.rules.study_facts import facts_of_study  # noqa: PLC0415 - imports pydicom
    from hilum.store.queries.views import LedgerViews  # noqa: PLC0415 - imports the ledger

    with explained(), closing(LedgerViews(settings.ledger_url)) as views:
        found = views.decided_study(uid) or views.decided_study(views.study_of(uid) or "")
        if found is None:
            raise ended(
                1,
                f"no study {uid} in the ledger, and no such file; `hilum find` looks for an"
                " Accession Number",
            )
        study, image = found
        with acting(settings, study.study_instance_uid):
            pass  # before it is shown
    if image is None or image.pixels_removed_at is not None:
        why = "most of its header has left with its pixels: those attributes are absent here"
        print(f"hilum: {why}", file=sys.stderr)
    _print(settings, facts_of_study(study, image, settings), study, as_json=as_json)


def _print(settings: Settings, facts: StudyFacts, study: Study | None, *, as_json: bool) -> None:
    from hilum.rules.explanation import as_text, explain  # noqa: PLC0415 - not needed elsewhere

    answer = None if study is None else study.worklist
    if answer is not None and not as_json:
        print(f"{answer.sentence} ({iso(answer.answered_at, 'seconds')})")
        if settings.rule_table is None:
            print("there are no rules: all studies are alike")
            return
    table = _table(settings)
    rules = explain(table, facts)
    decided = None if study is None else study.decision
    now = table.decide(facts)
    if as_json:
        found = {
            "calling_ae_title": facts.calling_ae_title,
            "called_ae_title": facts.called_ae_title,
            "decided": None if decided is None else asdict(decided),
            "decides": now.rule,
            "digest": now.digest,
            "worklist": None if answer is None else asdict(answer),
            "rules": [asdict(rule) for rule in rules],
        }
        print(json.dumps(found, indent=2, ensure_ascii=False))
        return
    if decided is not None:
        age = "as they are now" if decided.digest == now.digest else "which were changed since"
        print(f"decided at its first image by {decided.rule} (rules {decided.digest}, {age})")
    elif study is not None:
        print("no rule decided at its first image; the rules are evaluated now")
    print(f"from {facts.calling_ae_title or '-'} to {facts.called_ae_title or '-'}")
    for line in as_text(rules):
        print(line)


@rules_app.command("test")
@declare_verb(OF_FILES)
def try_cases(
    cases: Annotated[Path, typer.Argument(help="TOML file of cases: docs/operate/rules.md.")],
    config: Config = None,
) -> None:
    """Decide about each case of a file. Exit status 1 if another rule than expected decides."""
    settings = settings_of(config)
    from hilum.services.rules.cases import outcomes  # noqa: PLC0415 - imports pydicom

    with explained():
        found = outcomes(cases, settings, _table(settings))
    for item in found:
        if item.is_right:
            print(f"✓ {item.name}: {item.found}")
        else:
            print(f"✗ {item.name}: expected {item.expected}, and {item.found} decides")
    if wrong := sum(not item.is_right for item in found):
        raise ended(1, f"{wrong} of {len(found)} cases are decided by another rule")


@rules_app.command("replay")
@performs(Verb.LIST_STUDIES)
def replay_rules(
    config: Config = None,
    last: Annotated[int, typer.Option(min=1, max=1_000_000, help="The newest studies.")] = 1000,
    other: Annotated[
        Path | None,
        typer.Option("--settings", help="Another settings file. Default: the rules in use."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show how rules would change the decisions about the last studies.

    Nothing is changed.
    """
    settings = migrated_settings(config)
    from hilum.services.rules.replay import replay  # noqa: PLC0415 - imports the ledger
    from hilum.store.queries.views import LedgerViews  # noqa: PLC0415 - the same

    table = (settings if other is None else settings_of(other)).rule_table
    with (
        explained(),
        closing(LedgerViews(settings.ledger_url)) as views,
        acting(settings),
    ):
        found = replay(views, settings, table, last)
    if as_json:
        print(json.dumps(asdict(found), indent=2, ensure_ascii=False))
    else:
        _print_replay(found)


def _print_replay(found: Replay) -> None:
    print(f"{found.studies} studies, {found.unchanged} as they were decided")
    if found.unknown:
        print(f"{found.unknown} cannot be judged: their headers have left with their pixels")
    for change in found.changes:
        print(f"{change.was} → {change.would_be}: {change.studies}")
        for name, (was, would_be) in change.effects.items():
            print(f"    {name}: {_value(was)} → {_value(would_be)}")
        print(f"    such as {', '.join(change.examples)}")


def _value(value: object) -> str:
    if value in (None, ""):
        return "as for all"
    return ", ".join(map(str, value)) or "none" if isinstance(value, tuple) else str(value)


def _table(settings: Settings) -> RuleTable:
    """Return the rules; exit status 1 where there are none."""
    if settings.rule_table is None:
        raise ended(
            1,
            "there are no rules: all studies are alike. Write [[rules]] into the settings"
            " (docs/operate/rules.md)",
        )
    return settings.rule_table
