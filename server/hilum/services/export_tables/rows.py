"""From the rows of one study to the rows of the tables. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from hilum.assemble.findings import decide
from hilum.domain import (
    REASONS,
    CampaignImageState,
    Finding,
    Identifiers,
    ReadingState,
    Result,
    SeriesReason,
    SeriesState,
    ServerReason,
    SourceImage,
    StudyState,
)
from hilum.services.export_tables.columns import (
    FORMAT_VERSION,
    SERIES_SENTENCES,
    STATE_SENTENCES,
    Cell,
    NotReadState,
)
from hilum.store.queries.exports import (
    ExportedImage,
    ExportedReading,
    ExportedStudy,
    ListedImage,
    ListedSeries,
    StudySelection,
)
from hilum.timestamps import iso

ExportRow = Mapping[str, Cell]
"""A row by the names of its columns; a column without a value may be left out."""

_OPEN: Final = (ReadingState.DUE, ReadingState.LEASED)
_NOT_LISTED: Final = (None,)
_PRIVATE_SCHEME: Final = "99"  # PS3.16 8: designators that begin so, and L, are private
_LOCAL_SCHEME: Final = "L"
# Of a listed image that has no row of its own, and was not erased in the list itself.
_UNSEEN: Final[Mapping[CampaignImageState, NotReadState]] = {
    CampaignImageState.EXPECTED: NotReadState.WAITING,
    CampaignImageState.RECEIVED: NotReadState.GONE,
    CampaignImageState.READ: NotReadState.GONE,
    CampaignImageState.RELEASED: NotReadState.GONE,
    CampaignImageState.MISSING: NotReadState.MISSING,
}


@dataclass(frozen=True, slots=True)
class StudyRows:
    """The rows of one study, made once for every table.

    `identifiers`: of its newest image, with its Study Date in ISO 8601, or the day of the plan.
    """

    study: ExportedStudy
    chosen: StudySelection
    identifiers: Identifiers
    has_identifiers: bool = False
    _by_uid: Mapping[str, ExportedImage] = field(init=False)
    _sources: Mapping[str, Mapping[str, SourceImage]] = field(init=False)

    def __post_init__(self) -> None:
        """Index the images, and those of current results.

        A reported result counts before that of a shadow.
        """
        by_uid = {image.sop_instance_uid: image for image in self.study.images}
        sources = defaultdict[str, dict[str, SourceImage]](dict)
        for result in sorted(self.study.results, key=_is_reported):
            if result.id in self.study.current_ids:
                for source in result.source_images:
                    sources[source.sop_instance_uid][result.release] = source
        object.__setattr__(self, "_by_uid", by_uid)
        object.__setattr__(self, "_sources", sources)

    def images(self) -> Iterator[ExportRow]:
        """Yield one row for each image that was read, release, finding, and origin in the list."""
        for result in self.study.results:
            shared = self._of_result(result)
            for source in result.source_images:
                if source.is_used:
                    yield from self._of_used(result, source, shared)

    def studies(self) -> Iterator[ExportRow]:
        """Yield one row for each release and finding of the study."""
        entries = [entry for each in self.study.listed.values() for entry in each]
        if not self._is_wanted(entries):
            return
        for result in self.study.results:
            shared = self._of_whole(result, entries)
            for finding in result.findings:
                yield {**shared, **_of_finding(finding), **_of_study_finding(finding)}

    def _of_whole(self, result: Result, entries: Sequence[ListedImage]) -> dict[str, Cell]:
        return {
            **self._of_result(result),
            "origin": _shared_origin(entries, self.study.series),
            "campaign": _campaign(result.campaign_id, entries),
            "preprocessing_version": result.preprocessing_version,
            "outcome": result.outcome.value,
            "reason": result.reason,
            "images": len(result.source_images),
            "images_read": sum(source.is_used for source in result.source_images),
        }

    def not_read(self) -> Iterator[ExportRow]:
        """Yield one row for each image and release without numbers, and each unread series."""
        for image in self.study.images:
            for release in self._releases(image):
                said = self._said(image, release)
                if said is not None:
                    yield from self._of_unread(image, release, said)
        yield from self._not_received()
        yield from self._unread_series()

    def _of_study(self) -> dict[str, Cell]:
        study = self.study
        cells: dict[str, Cell] = {
            "format_version": FORMAT_VERSION,
            "study_instance_uid": study.study_instance_uid,
            "calling_ae_title": study.calling_ae_title or None,
            "called_ae_title": study.called_ae_title or None,
            "study_date": self.identifiers.study_date or None,
        }
        if self.has_identifiers:
            cells["accession_number"] = self.identifiers.accession_number or None
            cells["patient_id"] = self.identifiers.patient_id or None
            cells["issuer_of_patient_id"] = self.identifiers.issuer or None
        return cells

    def _of_image(self, image: ExportedImage) -> dict[str, Cell]:
        return {
            **self._of_study(),
            "series_instance_uid": image.series_instance_uid,
            "sop_instance_uid": image.sop_instance_uid,
            "received_at": iso(image.received_at),
        }

    def _of_unread(
        self, image: ExportedImage, release: str | None, said: Mapping[str, Cell]
    ) -> Iterator[ExportRow]:
        reading = self._reading(image, release)
        shared = {
            **self._of_image(image),
            "release": release,
            "read_at": _read_at(reading),
            **said,
        }
        for entry in self._entries(image.sop_instance_uid, reading):
            yield {**shared, **_of_entry(entry)}

    def _of_result(self, result: Result) -> dict[str, Cell]:
        return {
            **self._of_study(),
            "release": result.release,
            "is_trained": result.is_trained,
            "is_calibrated": result.is_calibrated,
            "is_shadow": result.is_shadow,
            "revision": result.revision,
            "is_current": result.id in self.study.current_ids,
            "result_at": iso(result.created_at),
        }

    def _of_used(
        self, result: Result, source: SourceImage, shared: Mapping[str, Cell]
    ) -> Iterator[ExportRow]:
        image = self._by_uid.get(source.sop_instance_uid)
        reading = None if image is None else self._reading(image, result.release)
        own = {**shared, **_of_source(source), **_of_reading(image, reading)}
        for entry in self._entries(source.sop_instance_uid, reading):
            for finding in result.findings:
                yield {
                    **own,
                    **_of_entry(entry),
                    **_of_finding(finding),
                    **_of_image_finding(finding, source, is_trained=result.is_trained),
                }

    def _entries(
        self, sop_instance_uid: str, reading: ExportedReading | None
    ) -> Sequence[ListedImage | None]:
        """Return the places of an image in the campaign's list; (None,): it is in no list.

        Empty: it is not wanted.
        """
        entries = self.study.listed.get(sop_instance_uid, ())
        prefix = self.chosen.origin_prefix
        if self.chosen.campaign_id is None:
            entries = _one_entry(entries, reading.campaign_id if reading else None)
            if not prefix:
                return entries or _NOT_LISTED
        return [entry for entry in entries if entry.origin.startswith(prefix)]

    def _is_wanted(self, entries: Sequence[ListedImage]) -> bool:
        prefix = self.chosen.origin_prefix
        return not prefix or any(entry.origin.startswith(prefix) for entry in entries)

    def _reading(self, image: ExportedImage, release: str | None) -> ExportedReading | None:
        return self.study.readings.get(image.id, {}).get(release or "")

    def _releases(self, image: ExportedImage) -> Sequence[str | None]:
        """Return the releases that should have read an image; (None,): none was asked."""
        if self.chosen.releases:
            return self.chosen.releases
        current = self._sources.get(image.sop_instance_uid, {})
        found = dict.fromkeys([*self.study.readings.get(image.id, {}), *current])
        return list(found) or _NOT_LISTED

    def _said(self, image: ExportedImage, release: str | None) -> dict[str, Cell] | None:
        """Return why an image has no number by this release; None: it has some."""
        reading = self._reading(image, release)
        source = self._sources.get(image.sop_instance_uid, {}).get(release or "")
        if source is None:
            return self._without_result(reading)
        if source.is_used:
            return None
        if reading is not None and reading.state in _OPEN:
            return _why(NotReadState.WAITING, None, None)
        return _why(NotReadState.NOT_ANALYSED, source.reason, reading.detail if reading else None)

    def _without_result(self, reading: ExportedReading | None) -> dict[str, Cell]:
        """Return why no current result names an image.

        A late image that is out of the release's scope makes no new result.
        """
        if reading is None:
            return _why(NotReadState.NOT_REQUESTED, None, None)
        if self.study.state is StudyState.FAILED:
            return _why(NotReadState.FAILED, self.study.reason, None)
        if self.study.state is StudyState.CLOSED and reading.state not in _OPEN:
            reason = reading.reason or ServerReason.RELEASE_NOT_AVAILABLE.value
            return _why(NotReadState.NOT_ANALYSED, reason, reading.detail)
        return _why(NotReadState.WAITING, None, None)

    def _not_received(self) -> Iterator[ExportRow]:
        """Yield images of the list that have no row in the archive."""
        if self.chosen.campaign_id is None:
            return
        for uid, entries in self.study.listed.items():
            if uid in self._by_uid:
                continue
            for entry in entries:
                if entry.origin.startswith(self.chosen.origin_prefix):
                    yield from self._of_unseen(entry)

    def _of_unseen(self, entry: ListedImage) -> Iterator[ExportRow]:
        shared = {
            **self._of_study(),
            **_of_entry(entry),
            "series_instance_uid": entry.series_instance_uid,
            "sop_instance_uid": entry.sop_instance_uid or None,
            **self._unseen(entry),
        }
        for release in self.chosen.releases or _NOT_LISTED:
            yield {**shared, "release": release}

    def _unseen(self, entry: ListedImage) -> dict[str, Cell]:
        """Return why the study has no such image."""
        is_erased = entry.reason == SeriesReason.ERASED
        if entry.found_in is not None and not is_erased:
            return _why(NotReadState.OTHER_STUDY, None, entry.found_in)
        state = NotReadState.ERASED if is_erased else _UNSEEN[entry.state]
        return _why(state, entry.reason, entry.detail)

    def _unread_series(self) -> Iterator[ExportRow]:
        has_images = {
            entry.series_instance_uid for each in self.study.listed.values() for entry in each
        }
        for series in self.study.series:
            state = _series_state(series, has_images=series.series_instance_uid in has_images)
            if state is None or not series.origin.startswith(self.chosen.origin_prefix):
                continue
            for release in self.chosen.releases or _NOT_LISTED:
                yield {**self._of_series(series, state), "release": release}

    def _of_series(self, series: ListedSeries, state: NotReadState) -> dict[str, Cell]:
        return {
            **self._of_study(),
            "series_instance_uid": series.series_instance_uid,
            "origin": series.origin or None,
            "campaign": series.campaign,
            **_why(state, series.reason, series.detail),
        }


def sentence_of(state: NotReadState, reason: str | None) -> str:
    """Return the sentence of a reason, or of the state where there is none that is known."""
    of_campaign = state in (NotReadState.MISSING, NotReadState.DEAD, NotReadState.ERASED)
    key = reason or ""
    if of_campaign and key in SERIES_SENTENCES:
        return SERIES_SENTENCES[key]
    return REASONS[key].meaning if key in REASONS else STATE_SENTENCES[state]


def _why(state: NotReadState, reason: str | None, detail: str | None) -> dict[str, Cell]:
    return {
        "state": state.value,
        "reason": reason or None,
        "sentence": sentence_of(state, reason),
        "detail": detail or None,
    }


def _series_state(series: ListedSeries, *, has_images: bool) -> NotReadState | None:
    """Return why a series has a row of its own; None: its images have theirs."""
    if series.state is SeriesState.DEAD:
        is_erased = series.reason == SeriesReason.ERASED
        return NotReadState.ERASED if is_erased else NotReadState.DEAD
    if series.state is SeriesState.NOTHING_TO_READ:
        return NotReadState.NOTHING_TO_READ
    return None if has_images else NotReadState.WAITING


def _of_source(source: SourceImage) -> dict[str, Cell]:
    return {
        "series_instance_uid": source.series_instance_uid,
        "sop_instance_uid": source.sop_instance_uid,
        "view": source.view or None,
        "flags": " ".join(source.flags) or None,
    }


def _of_reading(image: ExportedImage | None, reading: ExportedReading | None) -> dict[str, Cell]:
    return {
        "preprocessing_version": reading.preprocessing_version if reading else None,
        "received_at": iso(image.received_at) if image else None,
        "read_at": _read_at(reading),
    }


def _of_entry(entry: ListedImage | None) -> dict[str, Cell]:
    if entry is None:
        return {}
    return {"origin": entry.origin or None, "campaign": entry.campaign}


def _of_finding(finding: Finding) -> dict[str, Cell]:
    scheme = finding.code.scheme
    is_verified = not scheme.startswith(_PRIVATE_SCHEME) and scheme != _LOCAL_SCHEME
    return {
        "finding": finding.key,
        "finding_text": finding.text or None,
        "code_scheme": scheme if is_verified else None,
        "code_value": finding.code.value if is_verified else None,
        "operating_point": finding.operating_point,
    }


def _of_study_finding(finding: Finding) -> dict[str, Cell]:
    return {
        "logit": finding.logit,
        "score": finding.score,
        "probability": finding.probability,
        "decision": finding.decision.value,
        "source_sop_instance_uids": " ".join(finding.source_sop_instance_uids) or None,
    }


def _of_image_finding(
    finding: Finding, source: SourceImage, *, is_trained: bool
) -> dict[str, Cell]:
    """Numbers of one image. The probability of a result is that of its one image, or of several."""
    score = source.scores.get(finding.key)
    is_alone = finding.source_sop_instance_uids == (source.sop_instance_uid,)
    decision = (
        None
        if score is None
        else decide(score, finding.operating_point, is_trained=is_trained).value
    )
    return {
        "logit": source.logits.get(finding.key),
        "score": score,
        "probability": finding.probability if is_alone else None,
        "decision": decision,
    }


def _one_entry(entries: Sequence[ListedImage], campaign_id: int | None) -> Sequence[ListedImage]:
    """Return the first entry in the campaign, or in the newest one; none: there is no entry."""
    of_campaign = [entry for entry in entries if entry.campaign_id == campaign_id]
    newest = max((entry.campaign_id for entry in entries), default=None)
    return (of_campaign or [entry for entry in entries if entry.campaign_id == newest])[:1]


def _campaign(campaign_id: int | None, entries: Sequence[ListedImage]) -> str | None:
    """Return the name of the campaign, or of the newest one that lists an image."""
    names = {entry.campaign_id: entry.campaign for entry in entries}
    newest = names.get(max(names, default=0))
    return names.get(campaign_id or 0, newest)


def _shared_origin(entries: Sequence[ListedImage], series: Sequence[ListedSeries]) -> str | None:
    origins = {entry.origin for entry in entries} or {each.origin for each in series}
    return (origins.pop() or None) if len(origins) == 1 else None


def _read_at(reading: ExportedReading | None) -> str | None:
    if reading is None or reading.finished_at is None:
        return None
    return iso(reading.finished_at)


def _is_reported(result: Result) -> bool:
    """False sorts first, and the last of a mapping's items stays."""
    return not result.is_shadow
