"""What we rely on in pynetdicom and its documentation does not promise.

In the client that tests send with.
"""

from __future__ import annotations

import threading
from typing import Any

from pynetdicom import AE, evt
from pynetdicom.association import MODE_REQUESTOR, Association

from tests.support.machine.waiting import wait_for
from tests.support.peers.committing import (
    INSTANCE,
    PUSH_MODEL,
    CommitmentScu,
    action_information,
    ask,
)
from tests.support.peers.raw_scu import DX


def test_a_reactor_that_is_to_be_paused_leaves_the_response_to_who_waits_for_it() -> None:
    """As tests/support/peers/pynetdicom_reactor.py mends it."""
    association = Association(AE(), MODE_REQUESTOR)
    association.dimse.msg_queue.put((1, "a response"))
    association._reactor_checkpoint.clear()
    assert association.dimse.get_msg() == (None, None)
    assert association.dimse.get_msg(block=True) == (1, "a response")
    association.dimse.msg_queue.put((1, "a request"))
    association._reactor_checkpoint.set()
    assert association.dimse.get_msg() == (1, "a request")


def test_a_release_waits_until_a_request_of_the_peer_is_answered() -> None:
    """As tests/support/peers/pynetdicom_reactor.py mends it."""
    answers: list[int] = []

    def taken(event: Any) -> tuple[int, None]:
        information = action_information("1.2.3", [(DX, "1.2.4")])
        reporting = (information, 1, PUSH_MODEL, INSTANCE)
        threading.Thread(
            target=lambda: answers.append(
                event.assoc.send_n_event_report(*reporting)[0].get("Status")
            )
        ).start()
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
