"""A DICOMweb server as a source of images: QIDO-RS for queries, WADO-RS for images."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Final

from hilum.domain import ExpectedImage
from hilum.retrieve.dicomweb.probe import DicomwebProbe
from hilum.retrieve.dicomweb.retrieval import WadoRetrieval
from hilum.retrieve.dicomweb.search import Search
from hilum.retrieve.dicomweb.session import WebSession
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
from hilum.settings import DicomwebSource

_IMAGES_OF_A_SERIES: Final = 10_000
_ASKED: Final = ("SOPInstanceUID", "SOPClassUID", "InstanceAvailability")


class DicomwebClient:
    """The source of kind `dicomweb`; see `ImageSource`. Opens no connection by itself.

    `clock`: seconds, for the life of tokens.
    """

    def __init__(
        self, settings: DicomwebSource, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._settings = settings
        self._session = WebSession(settings, clock)
        self._search = Search(self._session, settings)
        self._retrieval = WadoRetrieval(self._session, settings.address)

    def probe(self) -> Sequence[ProbeLine]:
        """See `ImageSource`."""
        return DicomwebProbe(self._session, self._search, self._settings).lines()

    def find(self, query: Query) -> Answers:
        """See `ImageSource`."""
        return self._search.find(query)

    def images(self, study_instance_uid: str, series_instance_uid: str) -> Sequence[ExpectedImage]:
        """See `ImageSource`."""
        keys = {
            "StudyInstanceUID": study_instance_uid,
            "SeriesInstanceUID": series_instance_uid,
            **dict.fromkeys(_ASKED, ""),
        }
        found = self._search.find(Query(Level.IMAGE, keys, _IMAGES_OF_A_SERIES))
        if found.is_cut_off:
            raise SourceError(
                "its list of the images of this series is cut off; raise its limit of results"
                " (Orthanc: LimitFindInstances)"
            )
        own = [
            item
            for item in found.items
            if _is_of(item, "StudyInstanceUID", study_instance_uid)
            and _is_of(item, "SeriesInstanceUID", series_instance_uid)
        ]
        return [_expected(item) for item in own]

    def fetch(self, wanted: FetchRequest, store: ObjectStore, stop: threading.Event) -> FetchReport:
        """See `ImageSource`."""
        return self._retrieval.fetch(wanted, store, stop)

    def close(self) -> None:
        """See `ImageSource`."""
        self._session.close()


def _is_of(item: Answer, keyword: str, uid: str) -> bool:
    """Return whether an answer is of this series; some servers leave out the UIDs of the path."""
    return item.get(keyword) in {None, "", uid}


def _expected(item: Answer) -> ExpectedImage:
    return ExpectedImage(
        item["SOPInstanceUID"],
        item.get("SOPClassUID", ""),
        availability=item.get("InstanceAvailability", ""),
    )
