"""What is accepted from whom."""

from __future__ import annotations

import re

import pytest
from pydicom import uid

from hilum.domain import IMAGE_SOP_CLASSES, TRANSFER_SYNTAXES
from hilum.receive.policy import association_policy, sender_policy
from hilum.receive.policy.advice import NotAccepted, advise
from hilum.receive.policy.association_policy import AssociationRejection, OpenAssociations, Policy
from hilum.receive.policy.sender_policy import SenderPolicy
from hilum.settings import Receive, Sender, Settings

CT = "1.2.840.10008.5.1.4.1.1.2"
CR = str(uid.ComputedRadiographyImageStorage)
DX = str(uid.DigitalXRayImageStorageForPresentation)
SC = str(uid.SecondaryCaptureImageStorage)
NEAR = ("10.0.0.0/8", "192.168.7.7", "fd00::/8")


# One hospital: an archive far away, a cassette reader, a router that is not trusted, and any host
# that knows the address.
HOSPITAL = Settings(
    receive={
        "ae_titles": ["HILUM", "ER"],
        "peers": ["10.0.0.0/8"],
        "maximum_associations": 8,
        "calling_ae_titles": ["ANYBODY"],
    },
    senders={
        "ARCHIVE": {
            "peers": ["192.0.2.0/24"],
            "called_ae_titles": ["HILUM"],
            "maximum_associations": 2,
            "transfer_syntaxes": ["JPEG2000Lossless", "ExplicitVRLittleEndian"],
        },
        "CASSETTES": {"sop_classes": ["ComputedRadiographyImageStorage"]},
        "BANNED": {"maximum_associations": 0},
    },
)


def policy_of(*, senders: dict[str, Sender] | None = None, **receive: object) -> Policy:
    return Policy(Receive(**receive), senders or {})


def terms_of(**receive: object) -> SenderPolicy:
    return policy_of(**receive).terms("ANY")


def code(found: AssociationRejection | None) -> tuple[int, int, int]:
    return (0, 0, 0) if found is None else (found.result, found.source, found.diagnostic)


@pytest.mark.parametrize(
    ("calling", "called", "address", "already", "expected", "said"),
    [
        ("ANYBODY", "HILUM", "10.1.1.1", OpenAssociations(7, 7), (0, 0, 0), None),
        (" ANYBODY ", " ER ", "10.1.1.1", OpenAssociations(), (0, 0, 0), None),
        ("ANYBODY", "HILUM", "192.0.2.1", OpenAssociations(), (1, 1, 1), "receive.peers"),
        ("ANYBODY", "OTHER", "10.1.1.1", OpenAssociations(), (1, 1, 7), "receive.ae_titles"),
        (
            "STRANGER",
            "HILUM",
            "10.1.1.1",
            OpenAssociations(),
            (1, 1, 3),
            "receive.calling_ae_titles",
        ),
        (
            "ANYBODY",
            "HILUM",
            "10.1.1.1",
            OpenAssociations(8),
            (2, 3, 2),
            "receive.maximum_associations",
        ),
        ("ARCHIVE", "HILUM", "192.0.2.1", OpenAssociations(7, 1), (0, 0, 0), None),
        ("ARCHIVE ", "HILUM", "::ffff:192.0.2.1", OpenAssociations(), (0, 0, 0), None),
        ("ARCHIVE", "HILUM", "10.1.1.1", OpenAssociations(), (1, 1, 1), "senders.ARCHIVE.peers"),
        (
            "ARCHIVE",
            "ER",
            "192.0.2.1",
            OpenAssociations(),
            (1, 1, 7),
            "senders.ARCHIVE.called_ae_titles",
        ),
        (
            "ARCHIVE",
            "HILUM",
            "192.0.2.1",
            OpenAssociations(2, 2),
            (2, 3, 2),
            "senders.ARCHIVE.maximum_associations",
        ),
        (
            "ARCHIVE",
            "HILUM",
            "192.0.2.1",
            OpenAssociations(8, 1),
            (2, 3, 2),
            "receive.maximum_associations",
        ),
        ("CASSETTES", "ER", "10.1.1.1", OpenAssociations(7, 7), (0, 0, 0), None),
        ("CASSETTES", "ER", "192.0.2.1", OpenAssociations(), (1, 1, 1), "receive.peers"),
        ("CASSETTES", "OTHER", "10.1.1.1", OpenAssociations(), (1, 1, 7), "receive.ae_titles"),
        (
            "BANNED",
            "HILUM",
            "10.1.1.1",
            OpenAssociations(),
            (2, 3, 2),
            "senders.BANNED.maximum_associations",
        ),
    ],
)
def test_who_is_let_in(
    calling: str,
    called: str,
    address: str,
    already: OpenAssociations,
    expected: tuple[int, int, int],
    said: str | None,
) -> None:
    found = Policy(HOSPITAL.receive, HOSPITAL.senders).rejection(called, calling, address, already)
    assert code(found) == expected
    assert (found is None) == (said is None)
    if found is not None and said is not None:
        assert re.search(rf"(?<![\w.]){re.escape(said)}(?![\w])", found.advice)
        assert address not in found.advice


@pytest.mark.parametrize(
    ("calling", "sop_class", "first", "how_many"),
    [
        ("ANYBODY", DX, "Explicit VR Little Endian", 16),
        ("ARCHIVE", DX, "JPEG 2000 Image Compression (Lossless Only)", 2),
        ("ARCHIVE", CR, "JPEG 2000 Image Compression (Lossless Only)", 2),
        ("CASSETTES", CR, "Explicit VR Little Endian", 16),
        ("CASSETTES", sender_policy.VERIFICATION, "Explicit VR Little Endian", 3),
        ("ARCHIVE", sender_policy.REPORT_SOP_CLASSES[0], "Explicit VR Little Endian", 3),
    ],
)
def test_what_is_taken_from_each_and_in_which_order(
    calling: str, sop_class: str, first: str, how_many: int
) -> None:
    found = association_policy.supported(
        [sop_class], Policy(HOSPITAL.receive, HOSPITAL.senders).terms(calling)
    )[sop_class]
    assert (uid.UID(found[0]).name, len(found)) == (first, how_many)


def test_a_class_that_a_sender_may_not_send_is_not_supported_for_it() -> None:
    asked = Policy(HOSPITAL.receive, HOSPITAL.senders)
    assert list(
        association_policy.supported(
            [CR, DX, SC, sender_policy.VERIFICATION], asked.terms("CASSETTES")
        )
    ) == [
        CR,
        sender_policy.VERIFICATION,
    ]
    assert list(association_policy.supported([CR, DX, SC], asked.terms("ARCHIVE"))) == [CR, DX, SC]


def test_the_advice_on_contexts_names_the_setting_of_this_sender() -> None:
    asked = Policy(HOSPITAL.receive, HOSPITAL.senders)
    assert (
        advise([NotAccepted(DX, is_known=False)], asked.terms("CASSETTES"))
        == "SOP Classes not accepted: Digital X-Ray Image Storage - For Presentation. "
        "Send Computed Radiography Image Storage only, or add to senders.CASSETTES.sop_classes."
    )
    assert (
        advise([NotAccepted(CT, is_known=False)], asked.terms("CASSETTES"))
        == "SOP Classes not accepted: CT Image Storage. Send Computed Radiography Image Storage"
        " only."
    )
    assert (
        advise([NotAccepted(DX, is_known=True)], asked.terms("ARCHIVE"))
        == "No Transfer Syntax accepted for: Digital X-Ray Image Storage - For Presentation."
        " Propose JPEG 2000 Image Compression (Lossless Only), or add to"
        " senders.ARCHIVE.transfer_syntaxes."
    )
    report = advise(
        [NotAccepted(sender_policy.REPORT_SOP_CLASSES[0], is_known=True)], asked.terms("ARCHIVE")
    )
    assert (
        report
        == "No Transfer Syntax accepted for: Comprehensive 3D SR Storage. Propose Explicit VR"
        " Little Endian."
    )


def test_what_is_taken_from_all_may_be_less_too() -> None:
    found = terms_of(
        sop_classes=("DigitalXRayImageStorageForPresentation",), transfer_syntaxes=("RLELossless",)
    )
    assert association_policy.supported([CR, DX], found) == {DX: (uid.RLELossless,)}
    assert "receive.sop_classes" in str(advise([NotAccepted(CR, is_known=False)], found))
    assert "receive.transfer_syntaxes" in str(advise([NotAccepted(DX, is_known=True)], found))


def test_without_a_list_of_callers_anybody_may_call() -> None:
    asked = policy_of(senders={"CR1": Sender()})
    assert asked.rejection("HILUM", "ANY") is None


def test_the_names_in_settings_are_the_keywords_of_the_standard() -> None:
    for table in (IMAGE_SOP_CLASSES, TRANSFER_SYNTAXES):
        assert {uid.UID(item).keyword: item for item in table.values()} == table


@pytest.mark.parametrize("called", ["", "OTHER", "hilum", "HILUM2"])
def test_another_called_ae_title_is_not_recognised(called: str) -> None:
    found = policy_of(ae_titles=("HILUM", "SECOND")).rejection(called, "ANY")
    assert code(found) == (1, 1, 7)
    assert found is not None
    assert "HILUM or SECOND" in found.advice


def test_the_advice_does_not_repeat_who_called() -> None:
    found = policy_of(calling_ae_titles=("ROUTER",)).rejection("HILUM", "STRANGER")
    assert found is not None
    assert "STRANGER" not in found.advice


@pytest.mark.parametrize("is_offered", [True, False])
def test_storage_commitment_is_offered_unless_it_is_switched_off(*, is_offered: bool) -> None:
    found = Policy(Receive(storage_commitment=is_offered), {"CR1": Sender()})
    for calling in ("CR1", "ANYBODY"):
        assert (
            sender_policy.STORAGE_COMMITMENT
            in association_policy.supported(
                [sender_policy.STORAGE_COMMITMENT], found.terms(calling)
            )
        ) is is_offered


def test_only_the_proposed_classes_that_we_know_are_supported() -> None:
    assert list(
        association_policy.supported([CT, DX, sender_policy.VERIFICATION, "not a uid"], terms_of())
    ) == [
        DX,
        sender_policy.VERIFICATION,
    ]
    assert association_policy.supported([], terms_of()) == {}


def test_what_a_chest_radiograph_may_be() -> None:
    names = {uid.UID(sop_class).name for sop_class in sender_policy.STORAGE_SOP_CLASSES}
    assert names == {
        "Computed Radiography Image Storage",
        "Digital X-Ray Image Storage - For Presentation",
        "Digital X-Ray Image Storage - For Processing",
        "Secondary Capture Image Storage",
    }


def test_transfer_syntaxes_explicit_little_endian_first_and_the_rare_ones_last() -> None:
    syntaxes = association_policy.supported([DX], terms_of())[DX]
    assert [uid.UID(item).name for item in syntaxes[:3]] == [
        "Explicit VR Little Endian",
        "Implicit VR Little Endian",
        "JPEG Baseline (Process 1)",
    ]
    assert syntaxes[-1] == uid.ExplicitVRBigEndian
    assert len(set(syntaxes)) == len(syntaxes) == 16


def test_advice_names_a_few_classes_and_counts_the_rest() -> None:
    many = [
        NotAccepted(f"1.2.840.10008.5.1.4.1.1.{number}", is_known=False) for number in (2, 4, 20, 6)
    ]
    advice = advise([*many, many[0]], terms_of())
    assert advice is not None
    assert "CT Image Storage, MR Image Storage" in advice
    assert "and 1 more" in advice
    assert "Send CR, DX and Secondary Capture" in advice


def test_advice_on_a_transfer_syntax_names_the_class_and_the_way_out() -> None:
    advice = advise([NotAccepted(DX, is_known=True)], terms_of())
    assert (
        advice == "No Transfer Syntax accepted for: Digital X-Ray Image Storage - For Presentation."
        " Propose Explicit VR Little Endian."
    )


def test_nothing_refused_needs_no_advice_and_nonsense_is_not_repeated() -> None:
    assert advise([], terms_of()) is None
    advice = advise(
        [NotAccepted("1.2\x1b[31m", is_known=False), NotAccepted("9" * 80, is_known=False)],
        terms_of(),
    )
    assert advice is not None
    assert advice.startswith("SOP Classes not accepted: an invalid UID.")


@pytest.mark.parametrize("address", ["10.1.2.3", "::ffff:10.1.2.3", "192.168.7.7", "fd00::5"])
def test_an_address_in_one_of_the_ranges_may_connect(address: str) -> None:
    assert policy_of(peers=NEAR).rejection("HILUM", "ANY", address) is None
    assert policy_of(senders={"ANY": Sender(peers=NEAR)}).rejection("HILUM", "ANY", address) is None


@pytest.mark.parametrize(
    "address", ["11.0.0.1", "::ffff:11.0.0.1", "192.168.7.8", "fe80::1", "fe80::1%eth0"]
)
def test_another_address_is_rejected_before_its_titles_are_looked_at(address: str) -> None:
    for asked in (policy_of(peers=NEAR), policy_of(senders={"ANY": Sender(peers=NEAR)})):
        found = asked.rejection("WRONG", "ANY", address)
        assert found is not None
        assert (*code(found), found.reason) == (1, 1, 1, "peer_address_not_allowed")
        assert address not in found.advice


def test_without_ranges_nobody_is_a_stranger() -> None:
    assert policy_of().rejection("HILUM", "ANY", "203.0.113.9") is None


def test_documents_are_accepted_for_the_loop_guard_and_for_rejection_notes_uncompressed() -> None:
    classes = (*sender_policy.SR_SOP_CLASSES, sender_policy.KEY_OBJECT_SELECTION)
    found = association_policy.supported(classes, terms_of())
    assert list(found) == list(classes)
    assert {tuple(syntaxes) for syntaxes in found.values()} == {
        (uid.ExplicitVRLittleEndian, uid.ImplicitVRLittleEndian, uid.ExplicitVRBigEndian)
    }


def test_our_own_pdf_is_accepted_where_objects_of_others_are_refused() -> None:
    strict = Policy(Receive(other_objects="refuse"), {}).terms("ANY")
    found = association_policy.supported([uid.EncapsulatedPDFStorage], strict)
    assert found[uid.EncapsulatedPDFStorage][0] == uid.ExplicitVRLittleEndian


@pytest.mark.parametrize(
    ("calling", "shown", "is_let_in"),
    [
        ("CR1", {"cr1.test", f"sha256:{'ab' * 32}"}, True),
        ("CR1", {f"sha256:{'cd' * 32}"}, True),
        ("CR1", {"cr2.test"}, False),
        ("CR1", set(), False),
        (" CR1 ", {"cr2.test"}, False),
        ("UNBOUND", {"cr2.test"}, True),
        ("UNBOUND", set(), True),
    ],
)
def test_a_title_that_is_bound_needs_a_certificate_with_one_of_its_names(
    calling: str, shown: set[str], is_let_in: bool
) -> None:
    senders = {"CR1": Sender(certificate_names=("CR1.test", f"SHA256:{'CD' * 32}"))}
    found = Policy(Receive(), senders).rejection(
        "HILUM", calling, certificate_names=frozenset(shown)
    )
    assert code(found) == ((0, 0, 0) if is_let_in else (1, 1, 3))
    assert found is None or (
        "senders.CR1.certificate_names" in found.advice and "cr2" not in found.advice
    )
