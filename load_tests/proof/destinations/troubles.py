"""The troubles: what each does to the receivers, to the dispatcher or to the ledger.

Each is over when it has met its documents, so no figure of time is part of it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from load_tests.proof import small_disk
from load_tests.proof.destinations.dialects import PAGE
from load_tests.proof.destinations.relay import Exchange, Handling, Relay
from load_tests.proof.destinations.scene import Scene
from load_tests.proof.part import pause
from testing.peers import Program

BEHIND_RELAY: Final = ("dicom", "sender", "stow", "webhook", "hl7", "fhir")
EVERY: Final = (*BEHIND_RELAY, "folder")
_FEW: Final = 2
_SLOW: Final = 5
_MANY: Final = 10  # more than the circuit breaker takes for the fault of single documents
_ALL: Final = 1_000_000
_AWAY_SECONDS: Final = 3.0


@dataclass(frozen=True, slots=True)
class Trouble:
    """`what`: in plain words. `act`: feed the scene and disturb it; return when that is over.

    `kinds`: the kinds of destinations that it can meet. `left_out`: why it cannot be run here;
    empty: it can.
    """

    what: str
    act: Callable[[Scene], None]
    kinds: tuple[str, ...] = BEHIND_RELAY
    left_out: Callable[[Scene], str] = lambda _: ""


def _answers(handling: Handling, times: int = _FEW) -> Callable[[Scene], None]:
    """A trouble of so many documents of each receiver."""

    def act(scene: Scene) -> None:
        relays = scene.relays()
        for relay in relays.values():
            relay.trouble(handling, times)
        scene.feed()
        scene.wait_until(
            lambda: all(relay.is_over for relay in relays.values()),
            "the trouble at each receiver",
        )

    return act


def _never(exchange: Exchange) -> None:
    exchange.forwarded()
    exchange.wait_for_the_end(lambda: False)


def _half(exchange: Exchange) -> None:
    answer = exchange.forwarded()
    exchange.say(answer[: len(answer) // 2])
    exchange.reset()


def _reset(exchange: Exchange) -> None:
    exchange.forwarded()
    exchange.reset()


def _page(exchange: Exchange) -> None:
    _keep_or_take(exchange)
    exchange.say(PAGE)


def _empty(exchange: Exchange) -> None:
    _keep_or_take(exchange)
    exchange.say(exchange.dialect.empty(exchange.request))


def _keep_or_take(exchange: Exchange) -> None:
    """To a webhook any 2xx is a receipt, by its standard: its receiver alone gets the document."""
    if exchange.dialect.is_receipt_by_status:
        exchange.forwarded()


def _refusal(exchange: Exchange) -> None:
    exchange.say(exchange.dialect.refusal(exchange.request))


def _slow(exchange: Exchange) -> None:
    exchange.say_slowly(exchange.forwarded_slowly())


def _receivers_killed(scene: Scene) -> None:
    """Each receiver dies with half a document in its hands; the folder's file system goes."""
    for kind, relay in scene.relays().items():
        relay.trouble(_deadly(relay, scene.program(kind)), 1)
    folders = [receiver.folder / "mount" for receiver in scene.folders()]
    for folder in folders:
        folder.rename(folder.with_name("unmounted"))
    scene.feed()
    scene.wait_until(
        lambda: all(scene.is_met(kind, _FEW) for kind in scene.receivers), "the outage of each"
    )
    for folder in folders:
        folder.with_name("unmounted").rename(folder)
    for kind, relay in scene.relays().items():
        scene.program(kind).start_again()
        relay.open()
        relay.heal()


def _deadly(relay: Relay, program: Program) -> Handling:
    def die(exchange: Exchange) -> None:
        exchange.forward_half()
        relay.shut()
        program.kill()
        exchange.reset()

    return die


class _Hold:
    """Receivers that have taken a document, and do not say so before `let_go`."""

    def __init__(self, scene: Scene) -> None:
        self._relays = scene.relays()
        self._over = threading.Event()
        self._holding = dict.fromkeys(self._relays, 0)
        for kind, relay in self._relays.items():
            relay.trouble(self._handling(kind), _ALL)

    @property
    def holds_all(self) -> bool:
        """Whether each receiver holds an answer back now."""
        return all(self._holding.values())

    def let_go(self) -> None:
        """Give the answers, and pass on all others."""
        for relay in self._relays.values():
            relay.heal()
        self._over.set()

    def _handling(self, kind: str) -> Handling:
        def hold(exchange: Exchange) -> None:
            answer = exchange.forwarded()
            self._holding[kind] += 1
            try:
                exchange.wait_for_the_end(self._over.is_set)
            finally:
                self._holding[kind] -= 1
            exchange.say(answer)

        return hold


def _dispatcher_killed(scene: Scene) -> None:
    """The dispatcher dies while each receiver has a document that it has not acknowledged."""
    held = _Hold(scene)
    scene.feed()
    scene.wait_until(lambda: held.holds_all, "a document at each receiver")
    scene.kill_dispatcher()
    held.let_go()


def _ledger_away(scene: Scene) -> None:
    """The ledger crashes while each receiver has a document that it has not acknowledged."""
    held = _Hold(scene)
    scene.feed()
    scene.wait_until(lambda: held.holds_all, "a document at each receiver")
    scene.stop_ledger()
    held.let_go()
    pause(_AWAY_SECONDS)
    scene.start_ledger()
    for relay in scene.relays().values():
        relay.heal()


def _disk_full(scene: Scene) -> None:
    """The file system of the folder has no byte left, and then it has."""
    (receiver,) = scene.folders()
    with small_disk.filled(receiver.folder):
        scene.feed()
        scene.wait_until(lambda: scene.is_met("folder", _FEW), "the full disk")


def _refused(scene: Scene) -> None:
    """Each receiver refuses some documents; a person corrects it, and has them sent again."""
    _answers(_refusal)(scene)
    scene.wait_for_the_end()
    scene.note_dead()
    scene.requeue()


TROUBLES: Mapping[str, Trouble] = {
    "receiver killed": Trouble(
        "it dies with half a document, and is started again", _receivers_killed, EVERY
    ),
    "never answers": Trouble(
        "it takes 2 documents and says nothing until we give up", _answers(_never)
    ),
    "hangs": Trouble("it takes 10 documents in a row and says nothing", _answers(_never, _MANY)),
    "half an answer": Trouble("2 answers break off in the middle", _answers(_half)),
    "reset": Trouble("2 connections are reset after the document was taken", _answers(_reset)),
    "web page": Trouble("2 answers are 200 with a page in HTML", _answers(_page)),
    "empty answer": Trouble(
        "2 answers are 200 with nothing, AA for no message, no status", _answers(_empty)
    ),
    "refused": Trouble("it refuses 2 documents; `hilum requeue deliver --all` follows", _refused),
    "slow": Trouble("it takes and answers 5 documents bit by bit", _answers(_slow, _SLOW)),
    "dispatcher killed": Trouble(
        "our process dies before the answer to a document comes", _dispatcher_killed, EVERY
    ),
    "ledger away": Trouble(
        "PostgreSQL crashes before the answer comes, for 3 s",
        _ledger_away,
        EVERY,
        lambda scene: "" if scene.database else "PostgreSQL is not installed",
    ),
    "disk full": Trouble(
        "not a byte is left, until there is",
        _disk_full,
        ("folder",),
        lambda _: "" if small_disk.may_mount() else "needs the right to mount a file system",
    ),
}
"""By name, in the order of the table."""
