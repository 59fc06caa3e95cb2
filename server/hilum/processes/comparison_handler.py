"""compare: a shadow's results for a study, compared with the reported ones.

They are not sent anywhere.
"""

from __future__ import annotations

import dataclasses
import time
import uuid
from collections.abc import Mapping

from hilum.assemble import WaitingStudy, assemble
from hilum.assemble.agreement import Said, is_flip, said_by_both
from hilum.domain import Advance, ComparisonJob, ComparisonState, Job, Release, Result, StudyState
from hilum.errors import Retry
from hilum.observability import telemetry
from hilum.receive.headers.patient import identity_of

_LOOK_AGAIN_SECONDS = 5.0
# for the case that the last reading cannot trigger the comparison, as it normally does
_READINGS_SECONDS = 3600.0


class CompareHandler:
    """The handler of the stage, one for a dispatcher."""

    def __init__(self, releases: Mapping[str, Release], namespace: uuid.UUID) -> None:
        self._releases = releases
        self._namespace = namespace

    async def handle(self, job: Job) -> Advance:
        """Handle one study."""
        assert isinstance(job, ComparisonJob)
        now = time.time()
        reported = _reported(job, now)
        decided = assemble(job.shadow, self._releases, self._namespace, now, identity_of)
        if isinstance(decided, WaitingStudy):
            raise Retry(
                f"the shadow has not read everything: {decided.reason}",
                after_seconds=_READINGS_SECONDS,
                is_outage=True,
            )
        results = [dataclasses.replace(item, is_shadow=True) for item in decided.results]
        said = (
            said_by_both(reported, _newest(results, job.shadow.current_results))
            if results or job.shadow.current_results
            else {}
        )
        _count(job, said)
        return Advance(ComparisonState.COMPARED, {"content": said}, results=results)


def _reported(job: ComparisonJob, now: float) -> Result:
    study = job.shadow.study
    if job.reported is None or study.state is not StudyState.CLOSED:
        # The pause is as long as the study has been open: all studies of an archive are open while
        # another release reads it.
        seconds = min(max(_LOOK_AGAIN_SECONDS, now - study.quiet_until), _READINGS_SECONDS)
        raise Retry("the study is not closed yet", after_seconds=seconds, is_outage=True)
    return job.reported


def _newest(results: list[Result], before: tuple[Result, ...]) -> Result:
    return (results or list(before))[-1]


def _count(job: ComparisonJob, said: Mapping[str, Said]) -> None:
    pair = (job.release, job.shadow_release)
    telemetry.SHADOW_STUDIES.labels(*pair).inc()
    for finding, item in said.items():
        telemetry.SHADOW_DIFFERENCE.labels(*pair).observe(abs(item[0] - item[1]))
        telemetry.SHADOW_FLIPS.labels(*pair, finding).inc(is_flip(item))
