"""The state of a study's reports, in one word for lists, REST and pages."""

from __future__ import annotations

from collections.abc import Collection

from hilum.domain import DeliveryState, ReportState, ResultState, StudyState

_OPEN = (DeliveryState.DUE, DeliveryState.LEASED)


def report_state(study: str, results: Collection[str], deliveries: Collection[str]) -> ReportState:
    """Derive it from the states of the study, of its current results and of their deliveries.

    A cancelled delivery has no part in it: either it has a successor (another SOP Class, a newer
    result) or it is not wanted any more.
    """
    if (
        study == StudyState.FAILED
        or ResultState.FAILED in results
        or DeliveryState.DEAD in deliveries
    ):
        return ReportState.FAILED
    has_open_result = any(state in (ResultState.DUE, ResultState.LEASED) for state in results)
    if study == StudyState.ERASED:
        return ReportState.NOT_DELIVERED
    if study != StudyState.CLOSED or has_open_result or any(state in deliveries for state in _OPEN):
        return ReportState.OPEN
    if DeliveryState.WITHHELD in deliveries:
        return ReportState.WITHHELD
    return (
        ReportState.DELIVERED
        if DeliveryState.DELIVERED in deliveries
        else ReportState.NOT_DELIVERED
    )
