"""Sources of the kinds c-move and c-get; see `retrieve.source.ImageSource`."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import replace

from hilum.domain import IMAGE_SOP_CLASSES, ExpectedImage
from hilum.retrieve.dimse.answers import UnansweredQuery, find
from hilum.retrieve.dimse.association import PacsAssociation
from hilum.retrieve.dimse.contexts import (
    STUDY_ROOT_FIND,
    STUDY_ROOT_GET,
    STUDY_ROOT_MOVE,
    Proposal,
    get_services,
    services,
)
from hilum.retrieve.dimse.identifiers import is_full_uid
from hilum.retrieve.dimse.outage import OutageRule
from hilum.retrieve.dimse.probe import probe
from hilum.retrieve.dimse.retrieval import Retrieval, RetrieveEnd
from hilum.retrieve.dimse.storage import GetStorage
from hilum.retrieve.source import (
    Answer,
    Answers,
    FetchReport,
    FetchRequest,
    Level,
    ObjectStore,
    ProbeLine,
    Query,
    SourceError,
)
from hilum.settings import CGetSource, CMoveSource, DimseSource


class DimseImageSource:
    """The part that C-MOVE and C-GET have in common. For one thread."""

    def __init__(self, settings: DimseSource, proposal: Proposal) -> None:
        self._settings = settings
        self._association = PacsAssociation(settings, proposal)
        self._outage = OutageRule()

    def probe(self) -> Sequence[ProbeLine]:
        """Return the abilities of this source. Never raises."""
        self._association.close()  # some servers allow one association for an AE Title
        return probe(self._settings)

    def find(self, query: Query) -> Answers:
        """Return the matches of a query. Raises SourceError."""
        try:
            found = find(self._association, self._settings, query)
        except UnansweredQuery as error:
            is_outage = self._outage.is_outage(str(sorted(query.keys.items())))
            raise SourceError(error.detail, is_outage=is_outage) from error
        finally:
            self._association.rest()
        self._outage.succeed()
        return found.answers

    def images(self, study_instance_uid: str, series_instance_uid: str) -> Sequence[ExpectedImage]:
        """Return the images of a series, each once. Raises SourceError, also for a part of them."""
        keys = {
            "StudyInstanceUID": study_instance_uid,
            "SeriesInstanceUID": series_instance_uid,
            "SOPInstanceUID": "",
            "SOPClassUID": "",
        }
        found = self.find(Query(Level.IMAGE, keys, self._settings.maximum_results))
        if found.is_cut_off:
            raise SourceError(
                f"{self._settings.address} does not list all images of series"
                f" {series_instance_uid}; raise its limit of results for our AE Title"
            )
        return _images_of(found.items, series_instance_uid)

    def fetch(self, wanted: FetchRequest, store: ObjectStore, stop: threading.Event) -> FetchReport:
        """Ask for images; return when the source has ended it, and never raise SourceError."""
        if not wanted.images:
            return FetchReport("0000")
        try:
            end, report = self._fetch(wanted, store, stop)
        except SourceError as error:
            return FetchReport("", error.detail, is_outage=error.is_outage, is_final=error.is_final)
        finally:
            self._association.rest()
        if end.is_trouble:
            is_outage = self._outage.is_outage(wanted.series_instance_uid)
            return replace(report, is_outage=is_outage)
        self._outage.succeed()
        return report

    def close(self) -> None:
        """Release the association; may be called twice."""
        self._association.close()

    def _fetch(
        self, wanted: FetchRequest, store: ObjectStore, stop: threading.Event
    ) -> tuple[RetrieveEnd, FetchReport]:
        raise NotImplementedError


class CMoveImageSource(DimseImageSource):
    """C-FIND and C-MOVE: images come to our own listener, also after the report."""

    def __init__(self, settings: CMoveSource) -> None:
        super().__init__(settings, services(STUDY_ROOT_FIND, STUDY_ROOT_MOVE))
        self._destination = settings.move_ae_title

    def _fetch(
        self, wanted: FetchRequest, store: ObjectStore, stop: threading.Event
    ) -> tuple[RetrieveEnd, FetchReport]:
        del store
        retrieval = Retrieval(
            self._association, self._settings.image_lists, destination=self._destination
        )
        end = retrieval.run(wanted, stop)
        return end, replace(end.report(wanted.limit_seconds), may_follow=True)


class CGetImageSource(DimseImageSource):
    """C-FIND and C-GET: images come over the association, and are stored before the report."""

    def __init__(self, settings: CGetSource) -> None:
        super().__init__(settings, get_services(STUDY_ROOT_FIND, STUDY_ROOT_GET))

    def _fetch(
        self, wanted: FetchRequest, store: ObjectStore, stop: threading.Event
    ) -> tuple[RetrieveEnd, FetchReport]:
        uids = [image.sop_instance_uid for image in wanted.images]
        storage = GetStorage(store, uids, self._association.accepted())
        retrieval = Retrieval(self._association, self._settings.image_lists, store=storage.take)
        end = retrieval.run(wanted, stop)
        report = end.report(wanted.limit_seconds)
        if storage.problem:
            report = replace(report, problem=f"not stored: {storage.problem}")
        return end, report


def _images_of(answers: Sequence[Answer], series_instance_uid: str) -> Sequence[ExpectedImage]:
    """Return the images of this series that we take; a server may answer with those of others."""
    classes = frozenset(IMAGE_SOP_CLASSES.values())
    found: dict[str, ExpectedImage] = {}
    for answer in answers:
        uid = answer.get("SOPInstanceUID", "")
        sop_class = answer.get("SOPClassUID", "")
        if answer.get("SeriesInstanceUID", "") != series_instance_uid or not is_full_uid(uid):
            continue
        if not sop_class or sop_class in classes:
            availability = answer.get("InstanceAvailability", "")
            found.setdefault(uid, ExpectedImage(uid, sop_class, availability=availability))
    return list(found.values())
