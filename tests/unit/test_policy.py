"""What is accepted from whom."""

from __future__ import annotations

import pytest
from pydicom import uid

from hilum.receive import policy
from hilum.receive.policy import NotAccepted
from hilum.settings import Receive

CT = "1.2.840.10008.5.1.4.1.1.2"
DX = str(uid.DigitalXRayImageStorageForPresentation)


def test_ours_is_accepted() -> None:
    settings = Receive(ae_titles=("HILUM", "SECOND"))
    assert policy.rejection("HILUM", "ANY", 0, settings) is None
    assert policy.rejection(" SECOND  ", "ANY", 0, settings) is None


@pytest.mark.parametrize("called", ["", "OTHER", "hilum", "HILUM2"])
def test_another_called_ae_title_is_not_recognised(called: str) -> None:
    found = policy.rejection(called, "ANY", 0, Receive(ae_titles=("HILUM", "SECOND")))
    assert found is not None
    assert (found.result, found.source, found.diagnostic) == (1, 1, 7)
    assert "HILUM or SECOND" in found.advice


def test_the_allow_list_names_who_may_connect() -> None:
    settings = Receive(calling_ae_titles=("ROUTER",))
    assert policy.rejection("HILUM", "ROUTER ", 0, settings) is None
    found = policy.rejection("HILUM", "STRANGER", 0, settings)
    assert found is not None
    assert (found.result, found.source, found.diagnostic) == (1, 1, 3)
    assert "receive.calling_ae_titles" in found.advice
    assert "STRANGER" not in found.advice


def test_one_association_too_many_is_a_transient_rejection() -> None:
    settings = Receive(maximum_associations=2)
    assert policy.rejection("HILUM", "ANY", 1, settings) is None
    found = policy.rejection("HILUM", "ANY", 2, settings)
    assert found is not None
    assert (found.result, found.source, found.diagnostic) == (2, 3, 2)
    assert "receive.maximum_associations" in found.advice


def test_only_the_proposed_classes_that_we_know_are_supported() -> None:
    assert list(policy.supported([CT, DX, policy.VERIFICATION, "not a uid"])) == [DX, policy.VERIFICATION]
    assert policy.supported([]) == {}


def test_what_a_chest_radiograph_may_be() -> None:
    names = {uid.UID(sop_class).name for sop_class in policy.STORAGE_SOP_CLASSES}
    assert names == {
        "Computed Radiography Image Storage",
        "Digital X-Ray Image Storage - For Presentation",
        "Digital X-Ray Image Storage - For Processing",
        "Secondary Capture Image Storage",
    }


def test_transfer_syntaxes_explicit_little_endian_first_and_the_rare_ones_last() -> None:
    syntaxes = policy.supported([DX])[DX]
    assert [uid.UID(item).name for item in syntaxes[:3]] == [
        "Explicit VR Little Endian",
        "Implicit VR Little Endian",
        "JPEG Baseline (Process 1)",
    ]
    assert syntaxes[-1] == uid.ExplicitVRBigEndian
    assert len(set(syntaxes)) == len(syntaxes)
    assert {
        uid.JPEGExtended12Bit,
        uid.JPEGLossless,
        uid.JPEGLosslessSV1,
        uid.JPEGLSLossless,
        uid.JPEGLSNearLossless,
        uid.JPEG2000Lossless,
        uid.JPEG2000,
        uid.HTJ2KLossless,
        uid.HTJ2K,
        uid.RLELossless,
        uid.DeflatedExplicitVRLittleEndian,
    } < set(syntaxes)


def test_advice_names_a_few_classes_and_counts_the_rest() -> None:
    many = [NotAccepted(f"1.2.840.10008.5.1.4.1.1.{number}", is_known=False) for number in (2, 4, 20, 6)]
    advice = policy.advise([*many, many[0]])
    assert advice is not None
    assert "CT Image Storage, MR Image Storage" in advice
    assert "and 1 more" in advice
    assert "Send CR, DX and Secondary Capture" in advice


def test_advice_on_a_transfer_syntax_names_the_class_and_the_way_out() -> None:
    advice = policy.advise([NotAccepted(DX, is_known=True)])
    assert advice == ("No Transfer Syntax accepted for: Digital X-Ray Image Storage - For Presentation. Propose Explicit VR Little Endian.")


def test_nothing_refused_needs_no_advice_and_nonsense_is_not_repeated() -> None:
    assert policy.advise([]) is None
    advice = policy.advise([NotAccepted("1.2\x1b[31m", is_known=False), NotAccepted("9" * 80, is_known=False)])
    assert advice is not None
    assert advice.startswith("SOP Classes not accepted: an invalid UID.")


@pytest.mark.parametrize("address", ["10.1.2.3", "::ffff:10.1.2.3", "192.168.7.7", "fd00::5"])
def test_an_address_in_one_of_the_ranges_may_connect(address: str) -> None:
    settings = Receive(peers=("10.0.0.0/8", "192.168.7.7", "fd00::/8"))
    assert policy.rejection("HILUM", "ANY", 0, settings, peer_address=address) is None


@pytest.mark.parametrize("address", ["11.0.0.1", "::ffff:11.0.0.1", "192.168.7.8", "fe80::1", "fe80::1%eth0"])
def test_another_address_is_rejected_before_its_titles_are_looked_at(address: str) -> None:
    settings = Receive(peers=("10.0.0.0/8", "192.168.7.7", "fd00::/8"))
    found = policy.rejection("WRONG", "ANY", 0, settings, peer_address=address)
    assert found is not None
    assert (found.result, found.source, found.diagnostic, found.reason) == (1, 1, 1, "peer_address_not_allowed")
    assert "receive.peers" in found.advice
    assert address not in found.advice


def test_without_ranges_nobody_is_a_stranger() -> None:
    assert policy.rejection("HILUM", "ANY", 0, Receive(), peer_address="203.0.113.9") is None


def test_a_limit_for_one_sender_leaves_room_for_the_others() -> None:
    settings = Receive(maximum_associations=4, maximum_associations_by_ae={"ROUTER": 2, "BANNED": 0})
    assert policy.rejection("HILUM", "ROUTER ", 3, settings, open_of_sender=1) is None
    for calling, count in (("ROUTER", 2), ("BANNED", 0)):
        found = policy.rejection("HILUM", calling, 3, settings, open_of_sender=count)
        assert found is not None
        assert (found.result, found.source, found.diagnostic, found.reason) == (2, 3, 2, "limit_of_sender_exceeded")
    assert policy.rejection("HILUM", "CR1", 3, settings, open_of_sender=3) is None
    everybody = policy.rejection("HILUM", "CR1", 4, settings, open_of_sender=3)
    assert everybody is not None
    assert everybody.reason == "local_limit_exceeded"


def test_documents_are_accepted_for_the_loop_guard_and_for_rejection_notes_uncompressed() -> None:
    classes = (*policy.REPORT_SOP_CLASSES, policy.KEY_OBJECT_SELECTION)
    found = policy.supported(classes)
    assert list(found) == list(classes)
    assert {tuple(syntaxes) for syntaxes in found.values()} == {
        (uid.ExplicitVRLittleEndian, uid.ImplicitVRLittleEndian, uid.ExplicitVRBigEndian)
    }
