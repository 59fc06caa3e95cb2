"""The worklist client against DCMTK's wlmscpfs, and against a server that misbehaves."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import pytest

from hilum.retrieve.source import SourceError
from hilum.retrieve.worklist.client import WorklistClient
from hilum.retrieve.worklist.entries import OrderPriority
from tests.support.peers.certificates import Authority
from tests.support.peers.peers import free_port
from tests.support.worklist.worklists import (
    PATIENT,
    DcmtkWorklist,
    ScriptedWorklist,
    WorklistEnding,
    entry,
    worklist_at,
)

ORDER = "0042"
STAT = OrderPriority(("STAT",), 1, is_urgent=True)


@pytest.fixture(scope="module")
def dcmtk() -> Iterator[DcmtkWorklist]:
    with DcmtkWorklist() as running:
        running.put(ORDER, "STAT")
        running.put("42", "ROUTINE")
        running.put("43", "MEDIUM")
        running.put("43", "HIGH")
        running.put("44")
        running.put("A 1-2/3", "LOW")
        yield running


def asked(port: int, accession: str = ORDER, **settings: Any) -> OrderPriority:
    with closing(WorklistClient(worklist_at(port, **settings))) as client:
        return client.ask(accession)


@contextmanager
def refused(text: str) -> Iterator[None]:
    """The look-up fails with this text, which names neither the order nor the patient."""
    with pytest.raises(SourceError, match=text) as caught:
        yield
    assert ORDER not in caught.value.detail
    assert PATIENT not in caught.value.detail


@pytest.mark.parametrize(
    ("accession", "found"),
    [
        (ORDER, STAT),
        ("42", OrderPriority(("ROUTINE",), 1, is_urgent=False)),
        ("43", OrderPriority(("HIGH", "MEDIUM"), 2, is_urgent=True)),
        ("44", OrderPriority((), 1, is_urgent=False)),
        ("A 1-2/3", OrderPriority(("LOW",), 1, is_urgent=False)),
        ("45", OrderPriority((), 0, is_urgent=False)),
    ],
)
def test_dcmtk_names_the_priority_of_exactly_this_order(
    dcmtk: DcmtkWorklist, accession: str, found: OrderPriority
) -> None:
    assert asked(dcmtk.port, accession) == found


def test_one_association_serves_several_queries(dcmtk: DcmtkWorklist) -> None:
    with closing(WorklistClient(worklist_at(dcmtk.port))) as client:
        assert [client.ask(ORDER), client.ask(ORDER)] == [STAT, STAT]


def test_an_unknown_called_ae_title_is_rejected_by_dcmtk(dcmtk: DcmtkWorklist) -> None:
    with refused("rejected the association"):
        asked(dcmtk.port, ae_title="NOBODY")


def test_entries_of_other_orders_are_left_out() -> None:
    entries = [entry("9999", "STAT"), entry("42", "STAT"), entry("", "STAT"), entry(ORDER, "LOW")]
    with ScriptedWorklist(entries) as server:
        assert asked(server.port) == OrderPriority(("LOW",), 1, is_urgent=False)


def test_no_attribute_of_the_patient_is_asked_for() -> None:
    with ScriptedWorklist() as server:
        asked(server.port)
        (request,) = server.requests
    assert request.AccessionNumber == ORDER
    assert {element.tag.group for element in request.iterall()} == {0x0008, 0x0032, 0x0040}


def test_a_server_that_is_down() -> None:
    with refused("no DICOM answer"):
        asked(free_port())


def test_a_server_that_accepts_nobody() -> None:
    with ScriptedWorklist(refuses=True) as server, refused("rejected the association"):
        asked(server.port)


def test_a_server_that_offers_no_worklist() -> None:
    with ScriptedWorklist(is_worklist=False) as server, refused("offers no modality worklist"):
        asked(server.port)


def test_a_server_that_is_silent() -> None:
    with (
        ScriptedWorklist(ending=WorklistEnding.SILENCE) as server,
        refused("no whole answer|no association"),
    ):
        asked(server.port, timeout_seconds=1.0)


def test_a_server_that_aborts() -> None:
    with ScriptedWorklist(ending=WorklistEnding.ABORT) as server, refused("ended the association"):
        asked(server.port)


@pytest.mark.parametrize("status", [0xA700, 0xC001])
def test_a_server_that_fails(status: int) -> None:
    with ScriptedWorklist(final=status) as server, refused(f"{status:04X}"):
        asked(server.port)


def test_pending_without_end_is_cut_off() -> None:
    with ScriptedWorklist([entry(ORDER, "STAT")], ending=WorklistEnding.PENDING_FOR_EVER) as server:
        found = asked(server.port)
    assert (found.words, found.is_urgent, found.entries) == (("STAT",), True, 50)


def test_a_server_that_ignores_the_key_and_lists_everything() -> None:
    with (
        ScriptedWorklist([entry("7", "STAT")], ending=WorklistEnding.PENDING_FOR_EVER) as server,
        refused("does it ignore this key"),
    ):
        asked(server.port)


def test_a_worklist_by_tls(authority: Authority) -> None:
    own = authority.identity("ris.test", "DNS:ris.test")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(own.certificate, own.key)
    files = {"tls": True, "ca_file": authority.file}
    with ScriptedWorklist([entry(ORDER, "STAT")], tls=context) as server:
        assert asked(server.port, **files, tls_server_name="ris.test") == STAT
        with refused("other.test"):
            asked(server.port, **files, tls_server_name="other.test")
