"""What happens between two probes of a destination that is away.

The client is a real one, to a folder that is not mounted yet.
"""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from hilum.deliver import destinations, open_client
from hilum.deliver.circuit_breaker import CircuitBreaker
from hilum.deliver.destinations import DestinationClients
from hilum.domain import Document
from hilum.errors import Refused, Retry
from hilum.settings import FolderDestination, Pipeline, SenderDestination

SR = Document(
    "sr",
    "application/dicom",
    b"bytes",
    sop_class_uid="1.2.840.10008.5.1.4.1.1.88.34",
    sop_instance_uid="2.25.1",
)
LONG, SHORT = Pipeline(backoff_seconds=100.0), Pipeline(backoff_seconds=1e-4)


def client_to(folder: Path, settings: Pipeline) -> CircuitBreaker:
    return CircuitBreaker("share", open_client("share", FolderDestination(path=folder)), settings)


def refused(client: CircuitBreaker) -> Retry:
    with pytest.raises(Retry, match="mounted") as caught:
        client.deliver(SR)
    assert caught.value.is_outage
    return caught.value


def test_between_two_probes_nothing_goes_there(tmp_path: Path) -> None:
    client = client_to(tmp_path / "mount" / "share", LONG)
    assert not client.is_open
    first = refused(client)
    assert client.is_open
    (tmp_path / "mount").mkdir()
    second = refused(client)
    assert second.detail == first.detail
    assert first.after_seconds is not None
    assert second.after_seconds is not None
    assert 0 < second.after_seconds <= first.after_seconds == 30.0, (
        "what waits is back soon after its receiver, whatever the settings"
    )
    assert list((tmp_path / "mount").iterdir()) == []


def test_each_probe_in_vain_lengthens_the_pause_and_an_answer_ends_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    client, pauses = client_to(tmp_path / "mount" / "share", SHORT), []
    for _ in range(6):
        pauses.append(refused(client).after_seconds or 0.0)
        while client.is_open:
            time.sleep(0.001)
    assert all(
        0.75 * 1e-4 * 2**n <= pause <= 1.25 * 1e-4 * 2**n for n, pause in enumerate(pauses)
    ), pauses
    (tmp_path / "mount").mkdir()
    client.deliver(SR)
    assert not client.is_open
    said = capsys.readouterr().out
    assert (said.count("destination_unavailable"), said.count("destination_available")) == (1, 1)
    (tmp_path / "mount" / "share" / "2.25.1.dcm").unlink()
    (tmp_path / "mount" / "share").rmdir()
    (tmp_path / "mount").rmdir()
    assert (refused(client).after_seconds or 1.0) <= 1.25e-4, (
        "the next outage begins with short pauses"
    )


def test_a_refusal_is_an_answer(tmp_path: Path) -> None:
    client = client_to(tmp_path / "mount" / "share", SHORT)
    for _ in range(4):
        refused(client)
        while client.is_open:
            time.sleep(0.001)
    (tmp_path / "mount" / "share").mkdir(parents=True)
    (tmp_path / "mount" / "share" / "2.25.1.dcm").write_bytes(b"somebody's work")
    with pytest.raises(Refused, match="requeue"):
        client.deliver(SR)
    (tmp_path / "mount").rename(tmp_path / "away")
    assert (refused(client).after_seconds or 1.0) <= 1.25e-4


def report(number: int) -> Document:
    return Document(
        "sr",
        "application/dicom",
        b"bytes %d" % number,
        SR.sop_class_uid,
        f"2.25.{number}",
        id=number,
    )


def test_documents_that_alone_are_not_taken_keep_no_other_away(tmp_path: Path) -> None:
    """The PACS says 'out of resources' of what it will not have, as of a study that is locked.

    Here, names that cannot be written.
    """
    client, own = client_to(tmp_path, LONG), [report(1), report(2)]
    for document in own:
        (tmp_path / f"{document.sop_instance_uid}.dcm").mkdir()
    for number in range(10, 14):
        for document in own * 5:
            not_taken(client, document)
        assert not client.is_open
        client.deliver(report(number))
        assert (tmp_path / f"2.25.{number}.dcm").exists()


def test_who_takes_none_of_many_is_left_alone(tmp_path: Path) -> None:
    client = client_to(tmp_path, LONG)
    for number in range(8):
        assert not client.is_open
        (tmp_path / f"2.25.{number}.dcm").mkdir()
        last = not_taken(client, report(number))
    assert client.is_open
    assert last.after_seconds == 30.0


def test_of_many_senders_each_that_is_away_is_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    """More than there are clients kept open."""

    class Away:
        def deliver(self, document: Document) -> None:
            raise Retry("nobody there", is_outage=True)

        def close(self) -> None:
            """Nothing is open."""

    monkeypatch.setattr(destinations, "open_client", lambda *_: Away())
    senders = DestinationClients("back", SenderDestination(ports={"CR": 104}), LONG)
    for _ in range(2):
        for number in range(12):
            client = senders.of(
                SimpleNamespace(peer_address=f"10.0.0.{number}", calling_ae_title="CR")
            )  # type: ignore[arg-type]
            with pytest.raises(Retry):
                client.deliver(SR)
    kept = [
        senders.of(SimpleNamespace(peer_address=f"10.0.0.{number}", calling_ae_title="CR"))
        for number in range(12)
    ]  # type: ignore[arg-type]
    assert [client._probes for client in kept] == [1] * 12, "the second time nobody was probed"  # type: ignore[attr-defined]


def not_taken(client: CircuitBreaker, document: Document) -> Retry:
    with pytest.raises(Retry, match="directory") as caught:
        client.deliver(document)
    assert caught.value.is_outage
    return caught.value
