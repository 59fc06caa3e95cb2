"""`hilum sources list` and `hilum sources probe`, and a source by TLS."""

from __future__ import annotations

import json
import ssl
from contextlib import closing
from pathlib import Path

import pytest

from hilum.errors import ConfigurationError
from hilum.retrieve.source import Level, Query, SourceError
from hilum.services.sources import SOURCES, open_source
from hilum.settings import SOURCE_KINDS, Settings
from tests.support.peers.certificates import Authority
from tests.support.peers.peers import free_port
from tests.support.peers.scripted_archive import ScriptedArchive
from tests.support.server.commands import hilum

STUDIES = Query(Level.STUDY, {"StudyDate": "20190102", "StudyInstanceUID": ""}, 5)
ANSWER = {"StudyInstanceUID": "1.2.3"}


def settings_file(folder: Path, port: int) -> Path:
    """Settings with one source."""
    file = folder / "hilum.toml"
    file.write_text(
        f"""
[site]
state_dir = "{folder}/state"

[receive]
ae_titles = ["HILUM", "HILUM_ARC"]

[sources.pacs]
kind = "c-move"
host = "127.0.0.1"
port = {port}
ae_title = "ARCHIVE"
hours = ["mon-fri 20:00-06:00"]
time_zone = "Europe/Berlin"
timeout_seconds = 5.0
"""
    )
    return file


def tls_context(authority: Authority) -> ssl.SSLContext:
    """The server's side, with a certificate for the host pacs.test."""
    identity = authority.identity("pacs", "DNS:pacs.test")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(identity.certificate, identity.key)
    return context


def section(port: int, **changes: object) -> Settings:
    """Settings with one source."""
    pacs = {
        "kind": "c-get",
        "host": "127.0.0.1",
        "port": port,
        "ae_title": "ARCHIVE",
        "timeout_seconds": 5.0,
        **changes,
    }
    return Settings(sources={"pacs": pacs})


def test_the_list_shows_kind_address_and_hours(tmp_path: Path) -> None:
    done = hilum("sources", "list", "-c", settings_file(tmp_path, 104), folder=tmp_path)

    assert done.returncode == 0
    assert done.stdout.split(maxsplit=2) == [
        "pacs",
        "c-move",
        "ARCHIVE@127.0.0.1:104, mon-fri 20:00-06:00 Europe/Berlin\n",
    ]


def test_the_probe_ends_with_0_where_the_services_are_there(tmp_path: Path) -> None:
    with ScriptedArchive() as archive:
        file = settings_file(tmp_path, archive.port)
        done = hilum("sources", "probe", "pacs", "-c", file, folder=tmp_path)

    assert done.returncode == 0, done.stderr
    assert "ok  C-ECHO: 0000" in done.stdout
    assert "ok  C-MOVE (Study Root): offered" in done.stdout


def test_the_probe_ends_with_1_where_nothing_answers(tmp_path: Path) -> None:
    file = settings_file(tmp_path, free_port())

    done = hilum("sources", "probe", "pacs", "-c", file, "--json", folder=tmp_path)

    assert done.returncode == 1
    (line,) = json.loads(done.stdout)
    assert line["topic"] == "association"
    assert line["is_ok"] is False


def test_a_name_that_the_settings_do_not_hold_ends_with_2(tmp_path: Path) -> None:
    done = hilum("sources", "probe", "other", "-c", settings_file(tmp_path, 104), folder=tmp_path)

    assert done.returncode == 2
    assert "no source 'other' in the settings; known: pacs" in done.stderr


def test_a_source_that_is_not_in_the_settings_is_an_error() -> None:
    with pytest.raises(ConfigurationError, match="known: none"):
        open_source(Settings(), "pacs")


def test_a_query_goes_by_tls(authority: Authority) -> None:
    with ScriptedArchive(answers=[ANSWER], tls=tls_context(authority)) as archive:
        settings = section(
            archive.port, tls=True, ca_file=authority.file, tls_server_name="pacs.test"
        )
        with closing(open_source(settings, "pacs")) as source:
            found = source.find(STUDIES)

    assert len(found.items) == 1


def test_a_certificate_for_another_name_is_refused_with_the_remedy(authority: Authority) -> None:
    with ScriptedArchive(answers=[ANSWER], tls=tls_context(authority)) as archive:
        settings = section(
            archive.port, tls=True, ca_file=authority.file, tls_server_name="other.test"
        )
        with (
            closing(open_source(settings, "pacs")) as source,
            pytest.raises(SourceError, match="correct ca_file or tls_server_name") as caught,
        ):
            source.find(STUDIES)

    assert caught.value.is_outage


def test_a_port_that_wants_tls_is_asked_about_it(authority: Authority) -> None:
    with ScriptedArchive(answers=[ANSWER], tls=tls_context(authority)) as archive:
        settings = section(archive.port, timeout_seconds=1.0)
        with (
            closing(open_source(settings, "pacs")) as source,
            pytest.raises(SourceError, match="does this port speak TLS"),
        ):
            source.find(STUDIES)


def test_each_kind_of_the_settings_has_an_opener() -> None:
    assert set(SOURCES) == set(SOURCE_KINDS)
