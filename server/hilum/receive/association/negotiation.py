"""The response to an A-ASSOCIATE-RQ (PS3.8 7.1)."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from hilum.dicom import associate
from hilum.dicom.associate import (
    ABSTRACT_SYNTAX_NOT_SUPPORTED,
    ACCEPTANCE,
    TRANSFER_SYNTAXES_NOT_SUPPORTED,
    Answered,
    Proposed,
    Request,
)
from hilum.receive.policy.advice import NotAccepted
from hilum.receive.upper_layer.provider import AcceptedContext


@dataclass(frozen=True, slots=True)
class Acceptance:
    """An A-ASSOCIATE-AC with its contents.

    `contexts`: those accepted, by ID. `not_accepted`: SOP Classes without an accepted context.
    `maximum_pdu_bytes`: the largest PDU of the peer, 0: any.
    """

    encoded: bytes
    contexts: Mapping[int, AcceptedContext]
    not_accepted: tuple[NotAccepted, ...]
    maximum_pdu_bytes: int


def accept(
    request: Request,
    supported: Mapping[str, Sequence[str]],
    maximum_pdu_bytes: int,
    scp_of: Collection[str] = (),
) -> Acceptance:
    """Return the acceptance of the supported part of a proposal.

    `supported`: Transfer Syntaxes in order of preference, by SOP Class. `maximum_pdu_bytes`: ours.
    `scp_of`: SOP Classes of which the peer may be the SCP, where it proposes that. Else it has only
    the standard role (SCU).
    """
    answers = [(context, _answer(context, supported)) for context in request.contexts]
    contexts = {
        context.context_id: AcceptedContext(context.abstract_syntax, answer.transfer_syntax)
        for context, answer in answers
        if answer.result == ACCEPTANCE
    }
    accepted = {context.sop_class_uid for context in contexts.values()}
    encoded = associate.encode_acceptance(
        request,
        (answer for _, answer in answers),
        maximum_pdu_bytes,
        {uid: roles for uid, roles in request.roles.items() if uid in scp_of and roles.is_scp},
    )
    return Acceptance(
        encoded, contexts, tuple(_not_accepted(answers, accepted)), request.maximum_pdu_bytes
    )


def _answer(proposed: Proposed, supported: Mapping[str, Sequence[str]]) -> Answered:
    if (syntaxes := supported.get(proposed.abstract_syntax)) is None:
        return Answered(
            proposed.context_id, ABSTRACT_SYNTAX_NOT_SUPPORTED, proposed.transfer_syntaxes[0]
        )
    chosen = next((syntax for syntax in syntaxes if syntax in proposed.transfer_syntaxes), None)
    if chosen is None:
        return Answered(
            proposed.context_id, TRANSFER_SYNTAXES_NOT_SUPPORTED, proposed.transfer_syntaxes[0]
        )
    return Answered(proposed.context_id, ACCEPTANCE, chosen)


def _not_accepted(
    answers: Sequence[tuple[Proposed, Answered]], accepted: set[str]
) -> Iterator[NotAccepted]:
    for proposed, answer in answers:
        if proposed.abstract_syntax not in accepted:
            yield NotAccepted(
                proposed.abstract_syntax, is_known=answer.result == TRANSFER_SYNTAXES_NOT_SUPPORTED
            )
