"""The same association at each listener.

The same statuses, the same rows, the same bytes in the archive. pynetdicom is the oracle.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from pydicom.uid import (
    Comprehensive3DSRStorage,
    CTImageStorage,
    ExplicitVRLittleEndian,
    ImplicitVRLittleEndian,
    KeyObjectSelectionDocumentStorage,
    SecondaryCaptureImageStorage,
)

from tests.support.ledger.storing import element, uid_element
from tests.support.machine.waiting import wait_for
from tests.support.peers.raw_scu import DX
from tests.support.peers.wire import ABORT, RELEASE, VERIFICATION, Wire, message, store
from tests.support.server.listening import NOT_COMPILED, ListenerProcess, make_settings

SC, SR, KOS = (
    str(SecondaryCaptureImageStorage),
    str(Comprehensive3DSRStorage),
    str(KeyObjectSelectionDocumentStorage),
)
CONTEXTS = {1: DX, 3: VERIFICATION, 5: SC, 7: SR, 9: KOS, 11: str(CTImageStorage)}
SYNTAXES = {3: ImplicitVRLittleEndian}
MAXIMUM_OBJECT_BYTES = 1 << 20
_run = itertools.count(1)


Listeners = tuple[ListenerProcess, ListenerProcess, ListenerProcess]


@pytest.fixture(scope="module")
def listeners(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Listeners]:
    """The loop with what is compiled, the loop in Python alone, and pynetdicom."""
    folder = tmp_path_factory.mktemp("listeners")

    def made(name: str, library: Path | None = None, *, is_oracle: bool = False) -> ListenerProcess:
        settings = make_settings(folder / name, maximum_object_bytes=MAXIMUM_OBJECT_BYTES)
        return ListenerProcess(settings, library=library, is_oracle=is_oracle)

    with (
        made("compiled") as streaming,
        made("plain", NOT_COMPILED) as plain,
        made("oracle", is_oracle=True) as slow,
    ):
        yield streaming, plain, slow


@dataclass(frozen=True)
class Store:
    """One C-STORE; `number` tells its SOP Instances apart, so that some come twice."""

    number: int
    context: int
    flaw: str
    header_bytes: int
    pixel_bytes: int
    pixel: int
    pdu_bytes: int

    def encoded(self, base: str) -> bytes:
        if self.flaw in WHOLE:
            return WHOLE[self.flaw]
        uid = f"{base}.{self.number}"
        parts = [
            uid_element(
                0x00080016, DX if self.flaw == "other class inside" else CONTEXTS[self.context]
            ),
            uid_element(0x00080018, f"{uid}.9" if self.flaw == "other instance inside" else uid),
            element(0x00090010, b"UN", bytes(self.header_bytes)),
            uid_element(0x0020000D, "" if self.flaw == "no study" else f"{base}.0"),
            uid_element(0x0020000E, f"{base}.0.1"),
            element(0x7FE00010, b"OW", bytes((self.pixel,)) * self.pixel_bytes),
        ]
        if self.flaw == "no pixels":
            parts.pop()
        encoded = b"".join(parts)
        return encoded[: len(encoded) // 2] if self.flaw == "cut in half" else encoded

    def command(self, base: str) -> bytes:
        changes: dict[str, bytes | None] = COMMANDS.get(self.flaw, {})
        sop_class = (
            SC
            if self.flaw == "other class in the command" and self.context != 5
            else CONTEXTS[self.context]
        )
        return store(f"{base}.{self.number}", sop_class=sop_class, **changes)


WHOLE = {
    "nothing": b"",
    "garbage": b"\xff" * 3000,
    "zeros": bytes(100_000),
    "text": b"GET / HTTP/1.1\r\n\r\n",
}
COMMANDS: dict[str, dict[str, bytes | None]] = {
    "no priority": {"e0700": None},
    "no class in the command": {"e0002": None},
    "no instance in the command": {"e1000": None},
    "bad instance in the command": {"e1000": b"1.2.x\0"},
}
FLAWS = (
    *("none",) * 12,
    "no pixels",
    "cut in half",
    "no study",
    "other class inside",
    "other instance inside",
    "other class in the command",
    *WHOLE,
    *COMMANDS,
)
STORES = st.builds(
    Store,
    number=st.integers(1, 3),
    context=st.sampled_from((1, 1, 1, 5, 7, 9)),
    flaw=st.sampled_from(FLAWS),
    header_bytes=st.sampled_from((0, 2, 30_000, 33_000, 300_000)),
    pixel_bytes=st.sampled_from((2, 5_000, 64_000, 500_000, MAXIMUM_OBJECT_BYTES)),
    pixel=st.integers(0, 1),
    pdu_bytes=st.sampled_from((300, 4096, 16384, 131072)),
)
SCRIPTS = st.tuples(
    st.lists(st.one_of(STORES, st.just("echo")), min_size=1, max_size=5),
    st.sampled_from((RELEASE, ABORT, b"")),
)


@settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
@given(script=SCRIPTS)
@example(
    script=([Store(1, 9, "none", 300_000, 5_000, 0, 4096)], RELEASE)
)  # large, in equal PDUs, and nothing that is written to a file
@example(script=([Store(1, 7, "none", 300_000, 5_000, 0, 4096)], RELEASE))
def test_all_listeners_do_the_same(
    listeners: Listeners, script: tuple[list[Store | str], bytes]
) -> None:
    steps, last = script
    run = next(_run)
    streaming, plain, slow = (perform(listener, steps, last, run) for listener in listeners)
    assert streaming == slow
    assert plain == slow
    assert "receive_not_compiled" in listeners[1].log.read_text()


def perform(
    listener: ListenerProcess, steps: list[Store | str], last: bytes, run: int
) -> dict[str, Any]:
    """Everything that came of it, in the terms of its sender and of a reader of the ledger."""
    base, calling = f"1.2.840.{run}", f"RUN{run}"
    contexts = [
        (sop_class, SYNTAXES.get(number, ExplicitVRLittleEndian))
        for number, sop_class in CONTEXTS.items()
    ]
    with Wire(listener.port, calling=calling, contexts=contexts) as wire:
        answers = [step(wire, one, base) for one in steps]
        wire.send(last)
        ended = wire.next_pdu()[0] if last == RELEASE else None
    row = rows(listener, f"SELECT * FROM association WHERE calling_ae_title = '{calling}'")[0]
    stored = sum(
        answer[1] == 0 and one.context in (1, 5)
        for one, answer in zip(steps, answers, strict=True)
        if isinstance(one, Store)
    )
    return {
        "answers": answers,
        "ended": ended,
        "association": {
            name: row[name] for name in row if name not in ("id", "started_at", "ended_at")
        },
        "instances": instances(listener, base, stored),
    }


def step(wire: Wire, one: Store | str, base: str) -> tuple[Any, ...]:
    """What the response says. Of broken commands the loop repeats the UIDs, pynetdicom does not."""
    if isinstance(one, str):
        return ("echo", wire.status_of_echo())
    wire.send(
        message(one.command(base), one.encoded(base), context=one.context, pdu_bytes=one.pdu_bytes)
    )
    response = wire.response()
    return (
        "store",
        int.from_bytes(response[0x0900], "little"),
        {number: response.get(number) for number in (0x0100, 0x0120, 0x0800, 0x0902)},
    )


def instances(listener: ListenerProcess, base: str, acknowledged: int) -> dict[str, Any]:
    """Rows without what differs by nature, each with the bytes of its file.

    When all that was acknowledged has been indexed.
    """
    if acknowledged:
        rows(listener, f"SELECT 1 FROM instance WHERE study_instance_uid = '{base}.0'")
    wait_for(
        lambda: not any((listener.archive.root / "unindexed").rglob("*.*")), what="the indexer"
    )
    found = {}
    for row in map(
        dict, listener.rows(f"SELECT * FROM instance WHERE study_instance_uid = '{base}.0'")
    ):
        differs = ("id", "path", "received_at", "updated_at", "created_at")
        said = {
            name: value
            for name, value in row.items()
            if name not in differs and not name.endswith("_at")
        }
        found[row["sop_instance_uid"]] = (said, listener.archive.locate(row["path"]).read_bytes())
    return found


def rows(listener: ListenerProcess, query: str) -> list[dict[str, Any]]:
    """As soon as there are any."""
    return [dict(row) for row in wait_for(lambda: listener.rows(query), what=query)]


@pytest.mark.parametrize("which", [0, 1], ids=["compiled", "in Python"])
def test_what_was_learnt_on_the_way_in_is_what_the_file_says(
    listeners: Listeners, which: int
) -> None:
    """After a crash the scan reads the file: it must come to the same row."""
    from hilum.receive.indexing.describe import describe

    streaming = listeners[which]
    uid = "1.2.999.1"
    one = Store(1, 1, "none", 30_000, 500_000, 7, 16384)
    with Wire(streaming.port, calling="ODD TITLE", contexts=[(DX, ExplicitVRLittleEndian)]) as wire:
        wire.send(message(one.command("1.2.999"), one.encoded("1.2.999")))
        assert wire.status() == 0
    (row,) = rows(streaming, f"SELECT * FROM instance WHERE sop_instance_uid = '{uid}'")
    (seed,) = rows(streaming, "SELECT value FROM installation WHERE key = 'digest_seed'")
    said = describe(streaming.archive.locate(row["path"]), int(seed["value"], 16))
    for name in (
        "digest",
        "pixel_digest",
        "size_bytes",
        "calling_ae_title",
        "called_ae_title",
        "peer_address",
        "received_at",
        "path",
    ):
        assert getattr(said, name) == row[name], name
