"""The threads of the retriever's campaigns."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest

from hilum.domain import FILES, CampaignOptions, PlannedSeries
from hilum.processes.retriever import CampaignThreads
from hilum.settings import Settings
from hilum.store.campaigns.campaigns import Campaigns, PlanPart
from tests.support.campaigns.scripted_source import NoStore
from tests.support.ledger.rolling import Rolling, kept
from tests.support.machine.waiting import wait_for


# The thread raises it too, so that the log has it.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_bug_in_the_thread_of_a_campaign_is_raised_to_the_process(
    rolling: Rolling, tmp_path: Path
) -> None:
    url = rolling.ledger.url
    settings = Settings(site={"state_dir": tmp_path}, ledger={"url": url})  # type: ignore[arg-type]
    with (
        contextlib.closing(Campaigns(url)) as campaigns,
        contextlib.closing(CampaignThreads(settings, campaigns, "retriever:a", NoStore())) as (
            threads
        ),
    ):
        without_a_folder = campaigns.create("old", FILES, {})
        planned = PlannedSeries("1.1", "1.1.7", "20190101", "DX", 1)
        campaigns.add(without_a_folder.id, PlanPart("20190101", [(planned, [])]))
        campaigns.end_plan("old")
        campaigns.run("old", "chest@2", CampaignOptions(), kept("chest@2"))

        def has_raised() -> bool:
            try:
                threads.follow()
            except RuntimeError as error:
                return isinstance(error.__cause__, KeyError)
            return False

        wait_for(has_raised, what="the bug")
