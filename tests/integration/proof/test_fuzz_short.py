"""The short form of the proof's fuzz part.

1,000 odd associations, valid ones at both listeners, and what their judges must see.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from load_tests.proof.fuzz.archive import disagreements, objects
from load_tests.proof.fuzz.reader import messages
from load_tests.proof.fuzz.run import attack, compare
from load_tests.proof.fuzz.scripts import KINDS, Script, asked, script, valid
from tests.support.ledger.storing import data_set, element
from tests.support.peers.wire import ABORT, ECHO_RQ, RELEASE, command, message, pdu, pdv, store

CONTEXTS = {2 * number + 1 for number in range(len(KINDS))}


def test_a_thousand_associations_leave_what_was_acknowledged_and_nothing_else(
    tmp_path: Path,
) -> None:
    found = attack(tmp_path / "attacked", 1, 1_000, lambda _: None)
    assert found.goals
    assert [(goal.name, goal.value) for goal in found.goals if not goal.holds] == [], (
        found.problems[:3]
    )
    assert found.figures["objects_acknowledged"] > 200
    assert set(found.figures["answers"]) >= {
        "0x0000",
        "0xc000",
        "0x0211",
    }, "the scripts reach what the listener refuses"
    _damage_is_seen(tmp_path / "attacked/archive")


def _damage_is_seen(archive: Path) -> None:
    """Negative controls: an object that is lost, one that is changed, one that was not sent, one that pydicom finds to be another."""
    kept = objects(archive)
    lost, changed, other, *_ = kept
    acknowledged, possible = {lost: "1.2.1", changed: "1.2.2", other: "1.2.3"}, set(kept)
    kept[lost].unlink()
    kept[changed].write_bytes(kept[changed].read_bytes() + b"\0")
    seen = disagreements(acknowledged, possible, archive)
    assert [line.split(": ")[1].split(" 1.")[0] for line in seen] == [
        "acknowledged, and not in the archive",
        "acknowledged, and not in the archive",
        "nobody has sent these bytes",
        "is",
    ]


def test_valid_associations_come_out_alike_at_both_listeners(tmp_path: Path) -> None:
    found = compare(tmp_path / "compared", 1, 15)
    assert all(goal.holds for goal in found.goals), found.problems
    assert found.figures["answers_compared"] > 20
    assert found.figures["objects_compared"] > 10


def test_a_script_comes_back_with_its_seed() -> None:
    assert script(1, 7) == script(1, 7) != script(2, 7)
    assert valid(1, 7) == valid(1, 7) != valid(1, 8)


def test_every_message_of_a_valid_script_is_read() -> None:
    for number in range(50):
        made = valid(5, number)
        asked = [turn for turn in made.turns if turn not in (RELEASE, ABORT, b"")]
        assert len(list(messages(made.stream, CONTEXTS))) == len(asked)


def test_what_was_added_behind_a_request_counts_as_sent() -> None:
    spoilt = Script(asked() + b"\x07 behind it", (ECHO, RELEASE), is_valid=False)
    assert list(messages(spoilt.stream, CONTEXTS)) == [], (
        "a PDU of no type ends the association, before or after the echo has come"
    )
    assert (
        len(list(messages(Script(asked(), (ECHO, RELEASE), is_valid=False).stream, CONTEXTS))) == 1
    )


ECHO, OBJECT = message(command(ECHO_RQ), context=11), data_set("1.2.3")
HALF = pdu(4, pdv(OBJECT[:50], is_last=False))


@pytest.mark.parametrize(
    ("stream", "count"),
    [
        (message(store("1.2.3"), OBJECT) + RELEASE + ECHO, 1),
        (ECHO + ABORT + ECHO, 1),
        (ECHO + pdu(9, b"") + ECHO, 1),
        (ECHO + pdu(4, pdv(OBJECT)), 1),
        (ECHO + pdu(4, pdv(store("1.2.3"), context=13, is_command=True)), 1),
        (message(store("1.2.3")) + HALF, 0),
        (message(store("1.2.3")) + HALF + ECHO, 0),
        (message(store("1.2.3", e0110=None), OBJECT) + ECHO, 0),
        (message(store("1.2.3")[:-1], OBJECT) + ECHO, 0),
        (ECHO + pdu(4, pdv(store("1.2.3"), is_command=True) + pdv(OBJECT))[:-1], 1),
        (pdu(4, b"") + ECHO, 1),
    ],
)
def test_reading_ends_at_the_first_thing_that_must_not_be(stream: bytes, count: int) -> None:
    assert len(list(messages(stream, CONTEXTS))) == count


def test_a_message_is_put_together_from_its_fragments() -> None:
    encoded = OBJECT + element(0x7FE10010, b"UN", bytes(100))
    (read,) = messages(message(store("1.2.3", message_id=77), encoded, pdu_bytes=20), CONTEXTS)
    assert (read.message_id, read.is_store, hashlib.sha256(read.data_set).digest()) == (
        77,
        True,
        hashlib.sha256(encoded).digest(),
    )
