"""The class ladder, the probe and TLS against real receivers: DCMTK's storescp, Orthanc."""

from __future__ import annotations

import contextlib
import dataclasses
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest
from pydicom.uid import ExplicitVRLittleEndian, ImplicitVRLittleEndian
from pynetdicom import AE, evt

from hilum.deliver import SopClassRefused, probe_destination
from hilum.deliver.cstore import DicomClient
from hilum.domain import SR_CLASS_PREFERENCE, Document
from hilum.errors import Refused, Retry
from hilum.report import build_documents, derive
from hilum.settings import Destination, DicomDestination, FolderDestination
from testing.phantoms.phantom import make_study
from tests.support.peers.certificates import Authority
from tests.support.peers.peers import Orthanc, StoreScp, free_port
from tests.support.reports.results import CONTEXT, make_release, report_of

COMPREHENSIVE_3D, COMPREHENSIVE, ENHANCED, TEXT = SR_CLASS_PREFERENCE
DCMTK_NAMES = {
    COMPREHENSIVE: "ComprehensiveSRStorage",
    ENHANCED: "EnhancedSRStorage",
    TEXT: "BasicTextSRStorage",
}


@pytest.fixture(scope="module")
def report() -> Document:
    release = make_release()
    return build_documents(
        report_of(make_study(1, views=("PA",), rows=32, columns=32), release),
        release,
        CONTEXT,
        ("sr",),
    )[0]


def destination(port: int, ae_title: str = "STORESCP", **changes) -> Destination:
    return DicomDestination(
        **{"port": port, "ae_title": ae_title, "timeout_seconds": 5.0, **changes}
    )


def client_to(port: int, ae_title: str = "STORESCP", **changes) -> contextlib.closing[DicomClient]:
    return contextlib.closing(DicomClient("pacs", destination(port, ae_title, **changes)))


@contextlib.contextmanager
def pacs(
    *classes: str, syntax: str = ExplicitVRLittleEndian, status: int = 0x0000, **refused: int
) -> Iterator[tuple[int, list[str]]]:
    """A pynetdicom SCP that takes these SOP Classes and answers `status`.

    (port, classes of what it was given).
    """
    port, given = free_port(), []
    application = AE("PACS")
    for sop_class in classes:
        application.add_supported_context(sop_class, syntax)

    def answer(event: evt.Event) -> int:
        given.append(str(event.request.AffectedSOPClassUID))
        return refused.get(f"uid_{given[-1].rpartition('.')[2]}", status)

    server = application.start_server(
        ("127.0.0.1", port), block=False, evt_handlers=[(evt.EVT_C_STORE, answer)]
    )
    try:
        yield port, given
    finally:
        server.shutdown()


@pytest.mark.parametrize(
    "taken",
    [(COMPREHENSIVE, ENHANCED, TEXT), (ENHANCED, TEXT), (TEXT,)],
    ids=lambda item: item[0].name,
)
def test_the_richest_class_that_is_accepted_is_named_and_then_taken(taken, report):
    with (
        StoreScp(takes=tuple(DCMTK_NAMES[item] for item in taken)) as peer,
        client_to(peer.port) as client,
    ):
        with pytest.raises(
            SopClassRefused, match=r"does not take Comprehensive 3D SR Storage; the report goes as"
        ) as caught:
            client.deliver(report)
        assert caught.value.accepted == taken[0]
        lower = derive(report, taken[0], f"{report.sop_instance_uid}.1"[:64])
        client.deliver(lower)
        client.deliver(lower)
        assert [path.name.partition(".")[2] for path in peer.files()] == [lower.sop_instance_uid]
        assert peer.associations() == 1


def test_a_pacs_without_any_of_the_classes_is_a_refusal(report):
    with (
        StoreScp(refuse_sr=True) as peer,
        client_to(peer.port) as client,
        pytest.raises(
            Refused,
            match=r"Comprehensive 3D SR Storage.*, nor 3 other classes that would do: enable",
        ),
    ):
        client.deliver(report)


def test_settings_can_leave_rungs_out(report):
    with StoreScp(takes=(DCMTK_NAMES[ENHANCED], DCMTK_NAMES[TEXT])) as peer:
        with (
            client_to(peer.port, sr_classes=("comprehensive_3d", "basic_text")) as client,
            pytest.raises(SopClassRefused) as caught,
        ):
            client.deliver(report)
        assert caught.value.accepted == TEXT
        with (
            client_to(peer.port, sr_classes=("comprehensive_3d",)) as client,
            pytest.raises(Refused, match="enable this SOP Class") as only,
        ):
            client.deliver(report)
        assert not isinstance(only.value, SopClassRefused)


def test_a_class_that_settings_leave_out_is_not_sent_even_where_it_would_be_taken(report):
    with StoreScp() as peer, client_to(peer.port, sr_classes=("enhanced",)) as client:
        with pytest.raises(SopClassRefused) as caught:
            client.deliver(report)
        assert caught.value.accepted == ENHANCED
        assert peer.files() == []


def test_a_class_that_is_accepted_and_then_refused_steps_down_too(report):
    classes = (COMPREHENSIVE_3D.sop_class_uid, ENHANCED.sop_class_uid)
    with pacs(*classes, uid_34=0x0122) as (port, given), client_to(port, "PACS") as client:
        with pytest.raises(SopClassRefused) as caught:
            client.deliver(report)
        assert caught.value.accepted == ENHANCED
        client.deliver(derive(report, ENHANCED, "2.25.1"))
        assert given == list(classes)


def test_other_objects_share_the_association_with_reports(report):
    """A heat map between two reports costs one more negotiation, not one for each."""
    capture = dataclasses.replace(
        report, kind="picture", sop_class_uid="1.2.840.10008.5.1.4.1.1.88.67"
    )
    with StoreScp() as peer, client_to(peer.port) as client:
        for document in (report, capture, report, capture):
            with contextlib.suppress(Refused, Retry):
                client.deliver(document)
        assert peer.associations() == 2


def test_probe_of_a_pacs_that_takes_everything():
    with Orthanc() as peer:
        found = probe_destination("pacs", destination(peer.dicom_port, "ORTHANC"))
    assert (found.is_ok, found.echo, found.sr_class) == (True, "success", "comprehensive_3d")
    assert found.detail == "reports go there as Comprehensive 3D SR Storage"
    assert {item.sop_class for item in found.contexts if item.is_accepted} >= {
        "Verification SOP Class",
        "Basic Text SR Storage",
    }


def test_probe_names_the_class_that_would_be_sent_and_leaves_nothing_behind():
    with StoreScp(takes=(DCMTK_NAMES[ENHANCED], DCMTK_NAMES[TEXT])) as peer:
        found = probe_destination("pacs", destination(peer.port))
        left_out = probe_destination(
            "pacs", destination(peer.port, sr_classes=("comprehensive_3d",))
        )
        none = probe_destination("pacs", destination(peer.port, sr_classes=("comprehensive",)))
        assert peer.files() == []
    assert (found.is_ok, found.sr_class) == (True, "enhanced")
    assert {(item.sop_class_uid, item.is_accepted) for item in found.contexts} >= {
        (COMPREHENSIVE_3D.sop_class_uid, False),
        (ENHANCED.sop_class_uid, True),
    }
    assert not left_out.is_ok
    assert "Enhanced SR Storage" in left_out.detail
    assert "which sr_classes leaves out" in none.detail


def test_probe_says_what_is_missing():
    with StoreScp(refuse_sr=True) as peer:
        nothing = probe_destination("pacs", destination(peer.port, calling_ae_title="HILUM_A"))
    with pacs(COMPREHENSIVE_3D.sop_class_uid, syntax=ImplicitVRLittleEndian) as (port, _):
        implicit = probe_destination("pacs", destination(port, "PACS"))
    down = probe_destination("pacs", destination(free_port()))
    assert (
        "accepts no structured report; enable Comprehensive 3D SR Storage for our AE Title HILUM_A"
        in nothing.detail
    )
    assert "in Implicit VR Little Endian only" in implicit.detail
    assert (implicit.echo, nothing.echo) == ("not accepted", "success")
    assert "no DICOM answer" in down.detail
    assert not any((nothing.is_ok, implicit.is_ok, down.is_ok))


def test_probe_of_a_rejection_names_the_remedy():
    with Orthanc(DicomCheckCalledAet=True) as peer:
        found = probe_destination("pacs", destination(peer.dicom_port, "WRONG"))
    assert "(1,1,7)" in found.detail
    assert not found.is_ok


def test_probe_looks_for_heat_maps_where_they_shall_go():
    with pacs(COMPREHENSIVE_3D.sop_class_uid) as (port, _):
        found = probe_destination("pacs", destination(port, "PACS", documents=("sr", "heatmap")))
    assert (found.is_ok, found.sr_class) == (False, "comprehensive_3d")
    assert (
        found.detail
        == "it accepts no heat map; enable Secondary Capture Image Storage for our AE Title HILUM"
        " there"
    )


def test_probe_looks_for_each_class_that_a_destination_lists():
    kinds = ("sheet", "pdf", "text_sr", "gsps")
    with pacs(TEXT.sop_class_uid) as (port, _):
        found = probe_destination("pacs", destination(port, "PACS", documents=kinds))
    assert not found.is_ok
    assert found.detail == (
        "it accepts no result sheet; enable Secondary Capture Image Storage for our AE Title HILUM"
        " there; it accepts no result sheet as PDF; enable Encapsulated PDF Storage for our AE Title"
        " HILUM there; it accepts no presentation state; enable Grayscale Softcopy Presentation State"
        " Storage for our AE Title HILUM there"
    )


def text_of(report: Document) -> Document:
    return dataclasses.replace(derive(report, TEXT, "2.25.77"), kind="text_sr")


@pytest.mark.parametrize("documents", [("text_sr",), ("sr", "text_sr")])
def test_a_text_report_goes_as_such_whatever_the_ladder_holds(documents, report):
    """The ladder of this destination has no text; and the PACS takes nothing else."""
    changes = {"sr_classes": ("comprehensive_3d",), "documents": documents}
    with (
        StoreScp(takes=(DCMTK_NAMES[TEXT],)) as peer,
        client_to(peer.port, **changes) as client,
    ):
        client.deliver(text_of(report))
        assert [path.name.partition(".")[2] for path in peer.files()] == ["2.25.77"]
        with pytest.raises(Refused, match="does not accept Comprehensive 3D SR Storage"):
            client.deliver(report)


def test_a_refused_text_report_is_turned_into_nothing_else(report):
    with (
        pacs(COMPREHENSIVE_3D.sop_class_uid, ENHANCED.sop_class_uid) as (port, given),
        client_to(port, "PACS", documents=("sr", "text_sr")) as client,
    ):
        with pytest.raises(Refused, match="does not accept Basic Text SR Storage") as caught:
            client.deliver(text_of(report))
        client.deliver(report)
    assert not isinstance(caught.value, SopClassRefused)
    assert given == [COMPREHENSIVE_3D.sop_class_uid]


def test_probe_of_a_folder(tmp_path: Path):
    found = probe_destination("out", FolderDestination(path=tmp_path / "out"))
    assert (found.is_ok, found.detail) == (True, "will be made with the first document")
    assert not probe_destination("out", FolderDestination(path=tmp_path / "no" / "out")).is_ok
    assert list(tmp_path.iterdir()) == []


@pytest.fixture(scope="module")
def secured(authority: Authority) -> Iterator[StoreScp]:
    """A PACS that speaks TLS and wants a certificate of its authority from us."""
    own = authority.identity("pacs", "DNS:pacs.test", "IP:127.0.0.1")
    options = ("+tls", str(own.key), str(own.certificate), "+cf", str(authority.file), "-rc")
    with StoreScp(extra=options) as peer:
        yield peer


def tls(authority: Authority, **changes) -> dict[str, object]:
    ours = authority.identity("hilum")
    return {
        "tls": True,
        "ca_file": authority.file,
        "certificate_file": ours.certificate,
        "key_file": ours.key,
        **changes,
    }


def test_a_report_goes_over_tls(secured, authority, report):
    with client_to(secured.port, **tls(authority)) as client:
        client.deliver(report)
    assert [path.name.partition(".")[2] for path in secured.files()] == [report.sop_instance_uid]
    assert probe_destination(
        "pacs", destination(secured.port, **tls(authority, tls_server_name="pacs.test"))
    ).is_ok


def test_tls_that_fails_says_why(secured, authority, tmp_path):
    other = Authority(tmp_path)
    stranger = other.identity("stranger")
    cases = {
        "its certificate is not accepted": tls(authority, ca_file=other.file),
        "its certificate is not accepted (Hostname mismatch": tls(
            authority, tls_server_name="other.test"
        ),
        "have our certificate trusted there": {"tls": True, "ca_file": authority.file},
        "certificate": tls(authority, certificate_file=stranger.certificate, key_file=stranger.key),
        "No such file or directory": tls(authority, ca_file=tmp_path / "absent.pem"),
        "not usable": tls(authority, key_file=stranger.key),
    }
    for words, settings in cases.items():
        found = probe_destination("pacs", destination(secured.port, **settings))
        assert not found.is_ok
        assert words in found.detail, (words, found.detail)


def test_a_pacs_without_tls_and_tls_without_a_pacs(authority, report):
    with (
        StoreScp() as peer,
        client_to(peer.port, timeout_seconds=1.0, **tls(authority)) as client,
        pytest.raises(Retry, match="does this port speak TLS") as caught,
    ):
        client.deliver(report)
    assert caught.value.is_outage
    assert (
        "no DICOM answer"
        in probe_destination("pacs", destination(free_port(), **tls(authority))).detail
    )


def test_nothing_older_than_tls_1_2_is_spoken(authority):
    from hilum.dicom.tls_client import tls_of

    options = tls_of(destination(1, **tls(authority)), "127.0.0.1")
    assert options is not None
    context = options.context()
    assert context.minimum_version == ssl.TLSVersion.TLSv1_2
    assert context.check_hostname
    assert context.verify_mode == ssl.CERT_REQUIRED
