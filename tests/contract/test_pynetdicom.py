"""What we rely on in pynetdicom and its documentation does not promise. A bump that breaks one of these breaks the listener."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from pydicom.uid import ExplicitVRLittleEndian, ImplicitVRLittleEndian
from pynetdicom import AE, _config, evt
from pynetdicom.association import MODE_REQUESTOR, Association
from pynetdicom.dimse_messages import C_STORE_RQ
from pynetdicom.dimse_primitives import C_STORE
from pynetdicom.presentation import build_context
from pynetdicom.sop_class import Verification
from pynetdicom.transport import RequestHandler

from hilum.receive.listener import SharedSocketServer
from hilum.receive.prompt_answer import PromptAnswer
from tests.support.committing import INSTANCE, PUSH_MODEL, CommitmentScu, action_information, ask
from tests.support.raw_scu import DX, RawScu, rejection_of
from tests.support.storing import data_set
from tests.support.waiting import wait_for


class Watching(RequestHandler):
    """As our own connection's thread: everything about the association can be seen from it."""

    def handle(self) -> None:
        super().handle()
        self.server.seen.append(("handled in", threading.get_ident()))
        self.server.associations[-1].join(30)
        self.server.seen.append(("ended", None))


class Server(SharedSocketServer):
    """Ours, with what a test wants to see; `bind_to(assoc)` binds a test's handlers."""

    def opened(self, event: Any) -> None:
        self.seen.append(("opened in", threading.get_ident()))
        self.seen.append(("was alive", event.assoc.is_alive()))
        self.associations.append(event.assoc)
        self.bind_to(event.assoc)

    def verify_request(self, _request: socket.socket, _client_address: Any) -> bool:
        return True


@pytest.fixture
def server() -> Iterator[Server]:
    _config.LOG_HANDLER_LEVEL = "none"
    listening = socket.create_server(("127.0.0.1", 0))
    made = serve(listening)
    yield made
    made.shutdown()
    listening.close()


def serve(listening: socket.socket) -> Server:
    ae = AE()
    ae.acse_timeout = 20
    ae.add_supported_context(Verification)
    door = type("Door", (), {"settings": type("Settings", (), {"network_timeout_seconds": 30.0})})
    made = ae.make_server(listening.getsockname()[:2], server_class=Server, request_handler=Watching, listening_socket=listening, door=door)
    made.seen, made.associations, made.bind_to = [], [], lambda _assoc: None
    made.bind(evt.EVT_CONN_OPEN, made.opened)
    threading.Thread(target=made.serve_forever, args=(0.05,), daemon=True).start()
    return made


def port_of(server: Server) -> int:
    return int(server.server_address[1])


def accept_dx(server: Server, *handlers: tuple[Any, Any]) -> None:
    def bind_to(assoc: Any) -> None:
        def requested(_event: Any) -> None:
            assoc.acceptor.supported_contexts = [build_context(DX, [ExplicitVRLittleEndian]), build_context(Verification)]

        assoc.bind(evt.EVT_REQUESTED, requested)
        for event, handler in handlers:
            assoc.bind(event, handler)

    server.bind_to = bind_to


def test_the_connections_thread_sees_the_association_before_it_starts_and_when_it_ends(server: Server) -> None:
    with RawScu(port_of(server)) as scu:
        assert scu.echo() == 0
    wait_for(lambda: ("ended", None) in server.seen)
    seen = dict(server.seen)
    assert seen["opened in"] == seen["handled in"]
    assert seen["was alive"] is False
    assert server.associations[0].is_released


def test_the_socket_survives_the_server_and_serves_the_next(server: Server) -> None:
    server.shutdown()
    again = serve(server.socket)
    with RawScu(port_of(again)) as scu:
        assert scu.echo() == 0
    again.shutdown()


def test_two_servers_accept_from_one_socket(server: Server) -> None:
    other = serve(server.socket)
    for _ in range(20):
        with RawScu(port_of(server)) as scu:
            assert scu.echo() == 0
    assert len(server.associations) + len(other.associations) == 20
    other.shutdown()


def test_an_ipv6_socket() -> None:
    try:
        listening = socket.create_server(("::1", 0), family=socket.AF_INET6)
    except OSError:
        pytest.skip("no IPv6 loopback")
    made = serve(listening)
    assoc = AE().associate("::1", port_of(made), contexts=[build_context(Verification)])
    assert assoc.send_c_echo().Status == 0
    assoc.release()
    made.shutdown()
    listening.close()


def test_contexts_set_while_requested_decide_the_negotiation(server: Server) -> None:
    accept_dx(server)
    with RawScu(port_of(server)) as scu:
        assert sorted(context.abstract_syntax for context in scu.assoc.accepted_contexts) == sorted([DX, Verification])
    with RawScu(port_of(server), transfer_syntax_uid=ImplicitVRLittleEndian) as scu:
        assert [(context.abstract_syntax, context.result) for context in scu.assoc.rejected_contexts] == [(DX, 4)]
    with RawScu(port_of(server), sop_class_uid="1.2.840.10008.5.1.4.1.1.2") as scu:
        assert [context.result for context in scu.assoc.rejected_contexts] == [3]


@pytest.mark.parametrize("triple", [(1, 1, 7), (1, 1, 3), (2, 3, 2)])
def test_a_rejection_while_requested_goes_out_and_nothing_else(server: Server, triple: tuple[int, int, int]) -> None:
    def bind_to(assoc: Any) -> None:
        def requested(_event: Any) -> None:
            assoc.acse.send_reject(*triple)
            assoc.kill()

        assoc.bind(evt.EVT_REQUESTED, requested)

    server.bind_to = bind_to
    assert rejection_of(RawScu(port_of(server)).assoc) == triple
    wait_for(lambda: ("ended", None) in server.seen)
    assert server.associations[0].is_rejected


def test_the_answer_is_decided_while_the_thread_of_the_connection_waits_for_it(server: Server) -> None:
    """What `PromptAnswer` relies on."""
    seen = []

    def bind_to(assoc: Any) -> None:
        given = threading.Event()

        def moved(event: Any) -> None:
            if event.next_state == "Sta3":
                assoc.unbind(evt.EVT_FSM_TRANSITION, moved)
                seen.append((threading.current_thread() is assoc.dul, given.wait(30)))

        assoc.bind(evt.EVT_FSM_TRANSITION, moved)
        assoc.bind(evt.EVT_ACSE_SENT, lambda _event: given.set())

    server.bind_to = bind_to
    with RawScu(port_of(server)) as scu:
        assert scu.echo() == 0
    assert seen == [(True, True)]


@pytest.mark.parametrize("seconds", [0.0, 0.2], ids=["at once", "later than it waits"])
def test_a_prompt_answer_is_an_answer_and_leaves_nothing_bound(server: Server, seconds: float) -> None:
    def bind_to(assoc: Any) -> None:
        PromptAnswer(assoc)
        assoc.bind(evt.EVT_REQUESTED, lambda _event: time.sleep(seconds))

    server.bind_to = bind_to
    with RawScu(port_of(server)) as scu:
        assert scu.echo() == 0
        assert server.associations[0].get_handlers(evt.EVT_FSM_TRANSITION) == []


def test_the_data_set_comes_as_the_bytes_that_were_sent(server: Server) -> None:
    received = []

    def store(event: Any) -> int:
        received.append(event.request.DataSet.getbuffer())
        received.append((event.context.abstract_syntax, event.context.transfer_syntax))
        return 0

    accept_dx(server, (evt.EVT_C_STORE, store))
    sent = b"\xffnot a data set" * 30_000
    with RawScu(port_of(server)) as scu:
        assert scu.store(sent, "1.2.3") == (0, "")
    assert received == [sent, (DX, ExplicitVRLittleEndian)]


def test_the_message_in_progress_can_be_watched_and_bounded(server: Server) -> None:
    limit, began, received = 100_000, [], []

    def pdu_received(event: Any) -> None:
        message = event.assoc.dimse.message
        if message is None:
            began.append(type(event.pdu).__name__)
        elif message.data_set.tell() > limit:
            message.data_set.seek(limit)

    def store(event: Any) -> int:
        received.append(event.request.DataSet.getbuffer().nbytes)
        return 0

    accept_dx(server, (evt.EVT_PDU_RECV, pdu_received), (evt.EVT_C_STORE, store))
    with RawScu(port_of(server)) as scu:
        assert scu.store(bytes(5_000_000), "1.2.3")[0] == 0
        assert scu.store(bytes(50_000), "1.2.4")[0] == 0
    assert limit < received[0] <= limit + 2 * 16382
    assert received[1] == 50_000
    assert began.count("P_DATA_TF") == 2


def test_a_message_can_be_answered_on_arrival_and_then_be_ignored(server: Server) -> None:
    stored = []

    def message_received(event: Any) -> None:
        assert isinstance(event.message, C_STORE_RQ)
        response = C_STORE()
        response.MessageIDBeingRespondedTo = event.message.command_set.MessageID
        response.Status, response.ErrorComment = 0xC000, "said at once"
        event.assoc.dimse.send_msg(response, event.message.context_id)
        del event.message.command_set.AffectedSOPInstanceUID

    accept_dx(server, (evt.EVT_DIMSE_RECV, message_received), (evt.EVT_C_STORE, stored.append))
    with RawScu(port_of(server)) as scu:
        assert scu.store(data_set("1.2.3"), "1.2.3") == (0xC000, "said at once")
        assert scu.assoc.is_established
    assert not stored


def test_none_in_the_users_queue_ends_the_wait_for_a_request(server: Server) -> None:
    def bind_to(assoc: Any) -> None:
        assoc.bind(evt.EVT_CONN_CLOSE, lambda event: event.assoc.dul.to_user_queue.put(None))

    server.bind_to = bind_to
    socket.create_connection(("127.0.0.1", port_of(server))).close()
    wait_for(lambda: ("ended", None) in server.seen)


def test_an_abort_after_the_response_was_sent_comes_after_it(server: Server) -> None:
    def pdu_sent(event: Any) -> None:
        if type(event.pdu).__name__ == "P_DATA_TF":
            event.assoc.abort(block=False)

    accept_dx(server, (evt.EVT_PDU_SENT, pdu_sent), (evt.EVT_C_STORE, lambda _event: 0))
    with RawScu(port_of(server)) as scu:
        assert scu.store(data_set("1.2.3"), "1.2.3")[0] == 0
        wait_for(scu.assoc.acse.is_aborted)


def test_a_reactor_that_is_to_be_paused_leaves_the_response_to_who_waits_for_it() -> None:
    """As tests/support/pynetdicom_reactor.py mends it."""
    association = Association(AE(), MODE_REQUESTOR)
    association.dimse.msg_queue.put((1, "a response"))
    association._reactor_checkpoint.clear()
    assert association.dimse.get_msg() == (None, None)
    assert association.dimse.get_msg(block=True) == (1, "a response")
    association.dimse.msg_queue.put((1, "a request"))
    association._reactor_checkpoint.set()
    assert association.dimse.get_msg() == (1, "a request")


def test_a_release_waits_until_a_request_of_the_peer_is_answered() -> None:
    """As tests/support/pynetdicom_reactor.py mends it."""
    answers: list[int] = []

    def taken(event: Any) -> tuple[int, None]:
        information = action_information("1.2.3", [(DX, "1.2.4")])
        reporting = (information, 1, PUSH_MODEL, INSTANCE)
        threading.Thread(target=lambda: answers.append(event.assoc.send_n_event_report(*reporting)[0].get("Status"))).start()
        return 0, None

    ae = AE()
    ae.add_supported_context(PUSH_MODEL)
    peer = ae.start_server(("127.0.0.1", 0), block=False, evt_handlers=[(evt.EVT_N_ACTION, taken)])
    with CommitmentScu("ASKING") as scu, scu.associated(peer.server_address[1]) as association:
        scu.may_answer.clear()
        assert ask(association, action_information("1.2.3", [(DX, "1.2.4")])) == 0
        scu.next_report()
        threading.Timer(0.2, scu.may_answer.set).start()
        association.release()
        assert association.is_released
    wait_for(lambda: answers, what="the answer")
    peer.shutdown()
    assert answers == [0]
