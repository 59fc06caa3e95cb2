"""`hilum campaign`, `sources` and `export` with bad input: the exit status, and what to do."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from hilum.cli import app
from testing.serving import free_ports
from tests.support.ledger.ledgers import migrated_sqlite

LIST = "accession_number\n0004711\n\n0004711\n1.2E+05\n"


@pytest.fixture
def installation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Settings with a PACS that is off, and an empty ledger."""
    (tmp_path / "state/archive").mkdir(parents=True)
    migrated_sqlite(tmp_path / "state")
    return settings_in(tmp_path, monkeypatch)


def settings_in(folder: Path, monkeypatch: pytest.MonkeyPatch, more: str = "") -> Path:
    (port,) = free_ports(1)
    folder.joinpath("hilum.toml").write_text(
        f"""
[site]
state_dir = "{folder / "state"}"
[receive]
ae_titles = ["HILUM", "HILUM_ARC"]
[sources.pacs]
host = "127.0.0.1"
port = {port}
ae_title = "ARCHIVE"
{more}
"""
    )
    monkeypatch.chdir(folder)
    return folder


def said(*words: str) -> tuple[int, str]:
    """The exit status, and both outputs."""
    result = CliRunner().invoke(app, list(words))
    return result.exit_code, result.output


@pytest.mark.parametrize(
    ("command", "text"),
    [
        ("plan a", "give one of --source, --folder, --pictures and --archive"),
        ("plan a --source pacs", "give --dates FROM..TO or --list FILE"),
        ("plan a --source pcas --dates 2019-01-01", "no source 'pcas'"),
        ("plan a --source pacs --dates 2019-13-01", "give two days, as 2019-01-01..2019-12-31"),
        ("plan a --source pacs --dates 2019-02-01..2019-01-01", "swap the two"),
        ("plan a --source pacs --dates 2999-01-01", "all days lie in the future"),
        ("plan a --source pacs --dates 2019-01-01 --modality C*", "give words such as CR,DX"),
        ("plan A_ --source pacs --dates 2019-01-01", "1 to 64 small letters"),
        ("plan a --source pacs --list none.csv", "none.csv: No such file or directory."),
        ("plan a --archive", "the archive has no closed study as you said"),
        ("run a --release chest@1", "`hilum campaign plan` makes one"),
        ("run a --release chest@1 --nights --hours 20:00-06:00", "exclude each other"),
        ("run a --release chest@1 --hours night", "write days and a time"),
        ("pause a", "`hilum campaign list` shows all"),
        ("resume a", "`hilum campaign list` shows all"),
        ("cancel a", "`hilum campaign list` shows all"),
        ("retry a", "`hilum campaign list` shows all"),
        ("forget a", "`hilum campaign list` shows all"),
        ("status a", "`hilum campaign list` shows all"),
        ("export a --out a.csv", "`hilum campaign list` shows all"),
        ("compare a b@1 b@2", "`hilum campaign list` shows all"),
        ("compare all b c@2", "'b' names no release: give name@version"),
    ],
)
@pytest.mark.usefixtures("installation")
def test_a_command_that_cannot_be_done_says_what_to_do(command: str, text: str) -> None:
    status, output = said("campaign", *command.split())
    assert (status, text in output) == (2, True), output


def test_a_source_that_is_away_ends_the_plan_which_goes_on_later(installation: Path) -> None:
    (installation / "list.csv").write_text(LIST)
    for words in (("--dates", "2019-01-01"), ("--list", "list.csv")):
        status, output = said("campaign", "plan", "a", "--source", "pacs", *words)
        assert status == 1
        assert "is it running, are host and port right" in output
        assert "The same command goes on." in output


@pytest.mark.usefixtures("installation")
def test_a_plan_that_found_nothing_takes_other_options() -> None:
    status, output = said("campaign", "plan", "a", "--folder", "/nonexistent")
    assert (status, "is the path right" in output) == (1, True), output
    status, output = said("campaign", "plan", "a", "--archive")
    assert (status, "the archive has no closed study" in output) == (2, True), output


@pytest.mark.usefixtures("installation")
def test_a_cancelled_campaign_is_not_resumed() -> None:
    said("campaign", "plan", "a", "--archive")
    assert said("campaign", "cancel", "a") == (0, "a is cancelled\n")
    status, output = said("campaign", "resume", "a")
    assert (status, "plan a new campaign" in output) == (2, True)
    status, output = said("campaign", "plan", "a", "--archive")
    assert (status, "there is a campaign a already (cancelled)" in output) == (2, True)
    assert said("campaign", "forget", "a") == (0, "a is forgotten\n")


def test_without_a_ledger_a_command_says_how_one_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings_in(tmp_path, monkeypatch)
    status, output = said("campaign", "list")
    assert (status, "run `hilum migrate`" in output) == (2, True)


def test_a_time_zone_that_is_none_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings_in(tmp_path, monkeypatch, 'time_zone = "Europe/Berln"')
    status, output = said("sources", "list")
    assert (status, "give a name such as Europe/Berlin" in output) == (2, True)


def test_a_move_destination_that_is_no_title_of_ours_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings_in(tmp_path, monkeypatch, 'move_ae_title = "OTHER"')
    status, output = said("sources", "list")
    assert (status, "OTHER is not in receive.ae_titles; add it" in output) == (2, True)


@pytest.mark.usefixtures("installation")
def test_a_probe_that_fails_ends_with_1() -> None:
    status, output = said("sources", "probe", "pacs")
    assert (status, "NO  association" in output) == (1, True)


@pytest.mark.parametrize("name", ["a.xls", "nowhere/a.csv"])
@pytest.mark.usefixtures("installation")
def test_an_export_that_cannot_be_written_is_refused(name: str) -> None:
    status, output = said("export", "--out", name)
    assert (status, name in output) == (2, True)


@pytest.mark.usefixtures("installation")
def test_a_campaign_is_exported_to_standard_output() -> None:
    said("campaign", "plan", "a", "--archive")
    status, output = said("campaign", "export", "a", "--out", "-")
    assert (status, "0 rows of 0 studies" in output) == (0, True)
