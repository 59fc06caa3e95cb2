"""Where the reports of a study are.

One word, from the states of the study, its current results and their deliveries.
"""

from __future__ import annotations

import pytest

from hilum.domain import DeliveryState, ReportState, ResultState, StudyState
from hilum.store.queries.report_states import report_state


@pytest.mark.parametrize(
    ("study", "results", "deliveries", "expected"),
    [
        ("due", [], [], "open"),
        ("leased", ["reported"], ["delivered"], "open"),
        ("failed", ["reported"], ["delivered"], "failed"),
        ("erased", [], [], "not_delivered"),
        ("closed", ["due"], [], "open"),
        ("closed", ["leased"], [], "open"),
        ("closed", ["failed"], ["delivered"], "failed"),
        ("closed", ["reported"], ["due"], "open"),
        ("closed", ["reported"], ["leased", "delivered"], "open"),
        ("closed", ["reported"], ["due", "dead"], "failed"),
        ("closed", ["reported"], ["withheld"], "withheld"),
        ("closed", ["reported", "reported"], ["delivered", "withheld"], "withheld"),
        ("closed", ["reported"], ["due", "withheld"], "open"),
        ("closed", ["reported"], ["delivered"], "delivered"),
        ("closed", ["reported"], ["cancelled", "delivered"], "delivered"),
        ("closed", ["reported"], ["cancelled"], "not_delivered"),
        ("closed", ["reported"], [], "not_delivered"),
        ("closed", [], [], "not_delivered"),
    ],
)
def test_only_what_arrived_is_delivered(
    study: str, results: list[str], deliveries: list[str], expected: str
) -> None:
    assert report_state(study, results, deliveries) == ReportState(expected)


@pytest.mark.parametrize("study", StudyState)
@pytest.mark.parametrize("result", ResultState)
@pytest.mark.parametrize("delivery", DeliveryState)
def test_without_a_delivered_report_no_study_is_called_delivered(
    study: StudyState, result: ResultState, delivery: DeliveryState
) -> None:
    if report_state(study, [result], [delivery]) is ReportState.DELIVERED:
        assert (study, delivery) == (StudyState.CLOSED, DeliveryState.DELIVERED)
