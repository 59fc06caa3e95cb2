"""Another receiver of HL7 v2 that is not ours: hl7apy's MLLPServer, in threads of this process.

It closes the connection after each message, and validates each by its tables.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from hl7apy.core import Message
from hl7apy.mllp import AbstractHandler, MLLPServer
from hl7apy.parser import parse_message


class _Handler(AbstractHandler):  # type: ignore[misc]
    """Keeps a message and acknowledges it."""

    def __init__(self, message: str, kept: dict[str, str]) -> None:
        super().__init__(message)
        self._kept = kept

    def reply(self) -> str:
        """AA for a message that hl7apy finds valid, else AE."""
        parsed = parse_message(self.incoming_message)
        control_id = parsed.msh.msh_10.to_er7()
        is_valid = bool(parsed.validate())
        if is_valid:
            self._kept[control_id] = self.incoming_message
        answer = Message("ACK", version="2.5.1")
        answer.msh.msh_9 = "ACK^R01^ACK"
        answer.msa.msa_1 = "AA" if is_valid else "AE"
        answer.msa.msa_2 = control_id
        return str(answer.to_mllp())


@contextmanager
def hl7apy_receiver() -> Iterator[tuple[int, dict[str, str]]]:
    """Its port, and the messages that it has by MSH-10."""
    kept: dict[str, str] = {}
    server = MLLPServer("127.0.0.1", 0, {"ORU^R01^ORU_R01": (_Handler, kept)})
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield server.server_address[1], kept
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
