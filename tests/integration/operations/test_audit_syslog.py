"""The audit reaches Debian's rsyslog: each row once, in order, also when it was away."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree as Xml

import pytest

from hilum.audit.message import AuditSource
from hilum.audit.syslog import Collector, NotDelivered
from hilum.domain import Actor, Channel
from hilum.errors import ConfigurationError
from hilum.settings import Syslog
from hilum.store.admin.audit_cursors import AuditCursors
from hilum.store.audit.log import AuditLog
from hilum.supervisor.audit_readers import AuditReader
from hilum.verbs import Thing, Verb
from testing.serving import free_ports
from tests.support.ledger.ledgers import migrated_sqlite
from tests.support.machine.waiting import wait_for
from tests.support.peers.certificates import Authority
from tests.support.peers.rsyslog import RSYSLOGD, Rsyslog, rsyslog

needs_rsyslog = pytest.mark.skipif(
    RSYSLOGD is None, reason="rsyslog is the collector: deploy/debian-packages.sh installs it"
)
ALICE = Actor("Müller, Alice", Channel.PAGE, "10.0.0.7")
PROTOCOLS = ("udp", "tcp", "tls")


@pytest.fixture
def port() -> int:
    return free_ports(1)[0]


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    made = Authority(tmp_path)
    made.identity("collector", "IP:127.0.0.1")
    made.identity("hilum")
    return made


def settings_of(protocol: str, port: int, folder: Path) -> Syslog:
    if protocol != "tls":
        return Syslog(host="127.0.0.1", port=port, protocol=protocol)  # type: ignore[arg-type]
    files = {
        "ca_file": folder / "authority.pem",
        "certificate_file": folder / "hilum.pem",
        "key_file": folder / "hilum.key",
    }
    return Syslog(host="127.0.0.1", port=port, protocol="tls", **files)


class Site:
    """A ledger whose audit is read for a collector."""

    def __init__(self, folder: Path, settings: Syslog) -> None:
        url = migrated_sqlite(folder)
        self.log, self._cursors, self.now = AuditLog(url), AuditCursors(url), 0.0
        self._cursors.set_up(["syslog"])
        self.reader = AuditReader(
            self._cursors, "syslog", Collector(settings, AuditSource("Test")).send, lambda: self.now
        )

    def note(self, *names: str) -> None:
        for name in names:
            self.log.note(Verb.PAUSE, ALICE, thing=Thing.DESTINATION, name=name)

    def close(self) -> None:
        self.log.close()
        self._cursors.close()


@pytest.fixture(params=PROTOCOLS)
def protocol(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def site(tmp_path: Path, authority: Authority, protocol: str, port: int) -> Iterator[Site]:
    made = Site(tmp_path, settings_of(protocol, port, tmp_path))
    yield made
    made.close()


def names(collector: Rsyslog) -> list[str | None]:
    documents = [Xml.fromstring(item["msg"].lstrip("\ufeff")) for item in collector.received()]
    return [
        found.get("ParticipantObjectID")
        for root in documents
        for found in root.iter("ParticipantObjectIdentification")
    ]


@needs_rsyslog
def test_a_collector_gets_each_row_as_a_message_that_it_understands(
    site: Site, tmp_path: Path, protocol: str, port: int
) -> None:
    with rsyslog(tmp_path, protocol, port) as collector:
        collector.start()
        site.note("pacs", "archive")
        assert site.reader.turn() == 2
        wait_for(lambda: len(collector.received()) == 2, 20)
        first = collector.received()[0]
        assert (first["pri"], first["host"], first["app"], first["msgid"]) == (
            "85",
            socket.gethostname(),
            "hilum",
            "DICOM+RFC3881",
        )
        root = Xml.fromstring(first["msg"].lstrip("\ufeff"))
        person, event = root.find("ActiveParticipant"), root.find("EventIdentification")
        assert person is not None
        assert event is not None
        assert (person.get("UserID"), person.get("NetworkAccessPointID")) == (
            "Müller, Alice",
            "10.0.0.7",
        )
        assert first["at"].startswith(str(event.get("EventDateTime"))[:19])


@needs_rsyslog
@pytest.mark.parametrize("protocol", ["tcp", "tls"], indirect=True)
def test_what_a_collector_missed_while_it_was_away_comes_later_once_and_in_order(
    site: Site, tmp_path: Path, protocol: str, port: int
) -> None:
    with rsyslog(tmp_path, protocol, port) as collector:
        collector.start()
        site.note("a")
        assert site.reader.turn() == 1
        collector.stop()
        site.note("b", "c")
        assert site.reader.turn() == 0
        site.note("d")
        collector.start()
        assert site.reader.turn() == 0, "it waits before it tries again"
        site.now += 60
        assert site.reader.turn() == 3
        assert site.reader.turn() == 0
        collector.stop()
        assert names(collector) == ["a", "b", "c", "d"]


@needs_rsyslog
@pytest.mark.parametrize("protocol", ["tls"], indirect=True)
def test_a_collector_of_another_authority_gets_nothing(
    site: Site, tmp_path: Path, protocol: str, port: int
) -> None:
    (elsewhere := tmp_path / "elsewhere").mkdir()
    Authority(elsewhere).identity("collector", "IP:127.0.0.1")
    with rsyslog(elsewhere, protocol, port) as collector:
        collector.start()
        site.note("a")
        assert site.reader.turn() == 0
        collector.stop()
        assert collector.received() == []


def test_a_collector_that_resets_the_connection_has_not_taken_the_batch(
    tmp_path: Path, port: int
) -> None:
    with socket.create_server(("127.0.0.1", port)) as listening:
        threading.Thread(target=_reset_one, args=[listening], daemon=True).start()
        row = next(iter(_rows(tmp_path)))
        with pytest.raises(NotDelivered):
            Collector(Syslog(host="127.0.0.1", port=port, protocol="tcp"), AuditSource()).send(
                [row] * 200
            )


def test_octets_are_counted_so_that_a_line_break_in_a_name_divides_nothing(
    tmp_path: Path, port: int
) -> None:
    taken: list[bytes] = []
    with socket.create_server(("127.0.0.1", port)) as listening:
        thread = threading.Thread(target=_take_one, args=[listening, taken])
        thread.start()
        row = {**next(iter(_rows(tmp_path))), "actor": "two\nlines <85>1"}
        Collector(Syslog(host="127.0.0.1", port=port, protocol="tcp"), AuditSource()).send(
            [row, row]
        )
        thread.join(20)
    content = b"".join(taken)
    length, _, rest = content.partition(b" ")
    assert rest[int(length) :].startswith(length + b" <85>1 ")
    assert len(rest[int(length) :]) == int(length) + len(length) + 1


def test_files_that_are_no_certificates_are_said_before_anything_starts(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text("no certificate")
    with pytest.raises(ConfigurationError, match=r"audit\.syslog"):
        Collector(
            Syslog(host="127.0.0.1", protocol="tls", ca_file=tmp_path / "ca.pem"), AuditSource()
        )
    with pytest.raises(ConfigurationError, match=r"audit\.syslog"):
        Collector(
            Syslog(host="127.0.0.1", protocol="tls", ca_file=tmp_path / "nothing.pem"),
            AuditSource(),
        )


def _rows(folder: Path) -> list[dict[str, object]]:
    url = migrated_sqlite(folder)
    log, cursors = AuditLog(url), AuditCursors(url)
    log.note(Verb.PAUSE, ALICE, thing=Thing.DESTINATION, name="pacs")
    found = cursors.after(0)
    log.close()
    cursors.close()
    return found


def _reset_one(listening: socket.socket) -> None:
    connection, _ = listening.accept()
    connection.setsockopt(
        socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0"
    )  # closes with a reset
    connection.recv(10)
    connection.close()


def _take_one(listening: socket.socket, taken: list[bytes]) -> None:
    connection, _ = listening.accept()
    with connection:
        while piece := connection.recv(65536):
            taken.append(piece)
