"""The only place that creates metrics and configures logging.

Metrics are Prometheus multi-process files in `PROMETHEUS_MULTIPROC_DIR` (set by the supervisor
before a child starts), so that one scrape shows all processes. Labels are few and bounded: no UID,
no name, no AE Title that is not configured.
"""

from __future__ import annotations

import functools
import logging
import re
import sys
import threading
import traceback
from collections.abc import Iterable, Iterator, Mapping, Sequence
from time import thread_time
from types import TracebackType
from typing import Final

import structlog
from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    generate_latest,
    multiprocess,
)
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from hilum.libraries import silence_libraries

# Seconds. Stages take milliseconds, a study its quiet period, a PACS that is down hours.
_STAGE_BUCKETS: Final = (
    0.001,
    0.0025,
    0.005,
    0.01,
    0.025,
    0.05,
    0.1,
    0.25,
    0.5,
    1,
    2.5,
    5,
    10,
    30,
    60,
)
_STUDY_BUCKETS: Final = (
    0.05,
    0.1,
    0.15,
    0.25,
    0.4,
    0.6,
    1,
    2.5,
    5,
    10,
    15,
    20,
    30,
    45,
    60,
    120,
    300,
    900,
    3600,
)

INSTANCES_RECEIVED = Counter(
    "hilum_instances_received_total",
    "SOP Instances answered with Success, by outcome.",
    ["outcome"],
)
INSTANCES_REFUSED = Counter(
    "hilum_instances_refused_total",
    "C-STORE requests, and parts of STOW-RS, answered with a failure status.",
    ["status"],
)
RECEIVED_BYTES = Counter("hilum_received_bytes_total", "Bytes of data sets made durable.")
ASSOCIATIONS = Counter(
    "hilum_associations_total",
    "Associations by outcome; too_slow: aborted for receive.minimum_bytes_per_second; dropped: a"
    " connection that asked for none.",
    ["outcome"],
)
ASSOCIATION_ROWS_LOST = Counter(
    "hilum_association_rows_lost_total",
    "Associations that no row tells of, because the ledger did not take it while there was room to"
    " wait.",
)
ASSOCIATIONS_OPEN = Gauge(
    "hilum_associations_open", "Associations open now.", multiprocess_mode="livesum"
)
RECEIVE_SECONDS = Histogram(
    "hilum_receive_seconds",
    "First byte of a data set to its C-STORE response.",
    buckets=_STAGE_BUCKETS,
)
INDEX_SECONDS = Histogram(
    "hilum_index_seconds",
    "C-STORE response to the instance's row in the ledger.",
    buckets=_STAGE_BUCKETS,
)
WORKLIST_LOOKUPS = Counter(
    "hilum_worklist_lookups_total",
    "Studies whose priority a modality worklist was to give: urgent, not_urgent, no_priority,"
    " no_order (no entry of this order), failed, away (not asked), queue_full (not asked),"
    " no_accession, unsuitable (an Accession Number that cannot be asked for exactly),"
    " not_written.",
    ["outcome"],
)
WORKLIST_SECONDS = Histogram(
    "hilum_worklist_seconds",
    "One look-up in a modality worklist, with its association.",
    buckets=_STAGE_BUCKETS,
)
ARCHIVE_UPLOAD_SECONDS = Histogram(
    "hilum_archive_upload_seconds",
    "One object from the spool into the object store (archive.url).",
    buckets=_STAGE_BUCKETS,
)
ARCHIVE_ERRORS = Counter(
    "hilum_archive_errors_total",
    "Requests to the object store that failed after their repetitions, by cause.",
    ["cause"],
)
ARCHIVE_AWAY = Gauge(
    "hilum_archive_away",
    "1 if the last request of this host to the object store failed for a cause outside.",
    multiprocess_mode="mostrecent",
)
COMMITMENT_REQUESTS = Counter(
    "hilum_commitment_requests_total",
    "Requests for storage commitment (N-ACTION), by the status that answered them.",
    ["status"],
)
COMMITMENT_INSTANCES = Counter(
    "hilum_commitment_instances_total",
    "SOP Instances in reports of storage commitment: committed, or the Failure Reason.",
    ["outcome"],
)
COMMITMENT_REPORTS = Counter(
    "hilum_commitment_reports_total",
    "Reports to our own requests for storage commitment, by the status that answered them.",
    ["status"],
)
DELIVERY_COMMITMENTS = Counter(
    "hilum_delivery_commitments_total",
    "Documents by the storage commitment of their destination: asked, committed, not_kept (sent"
    " again) or given_up.",
    ["destination", "outcome"],
)
STAGE_SECONDS = Histogram(
    "hilum_stage_seconds",
    "Work on one item of a stage, claim to decision.",
    ["stage"],
    buckets=_STAGE_BUCKETS,
)
STAGE_WAIT_SECONDS = Histogram(
    "hilum_stage_wait_seconds",
    "Time from due to claim of one item of a stage.",
    ["stage"],
    buckets=_STUDY_BUCKETS,
)
STAGE_OUTCOMES = Counter(
    "hilum_stage_outcomes_total",
    "Ends of a stage's items, by state and reason.",
    ["stage", "state", "reason"],
)
STAGE_RETRIES = Counter("hilum_stage_retries_total", "Items given back for a later try.", ["stage"])
LEASES_LOST = Counter(
    "hilum_leases_lost_total", "Work thrown away because the lease had lapsed.", ["stage"]
)
DECODE_SECONDS = Histogram(
    "hilum_decode_seconds", "Stored object to stored values.", buckets=_STAGE_BUCKETS
)
PREPARE_SECONDS = Histogram(
    "hilum_prepare_seconds",
    "Stored values to the release's tensor.",
    ["release"],
    buckets=_STAGE_BUCKETS,
)
INFER_SECONDS = Histogram(
    "hilum_infer_seconds", "One batch through Triton.", ["release"], buckets=_STAGE_BUCKETS
)
BATCH_SIZE = Histogram(
    "hilum_batch_size", "Images in one batch.", ["release"], buckets=(1, 2, 4, 8, 16, 32, 64)
)
TRITON_IN_FLIGHT = Gauge(
    "hilum_triton_in_flight",
    "Batches on their way to an endpoint of Triton.",
    ["endpoint"],
    multiprocess_mode="livesum",
)
TRITON_HEALTHY = Gauge(
    "hilum_triton_healthy",
    "1 if an endpoint answers and gives every known answer.",
    ["endpoint"],
    multiprocess_mode="livemin",
)
TRITON_FOREIGN_MODELS = Gauge(
    "hilum_triton_foreign_models",
    "Models that an endpoint of Triton has loaded and that are neither ours nor named in"
    " triton.other_models.",
    ["endpoint"],
    multiprocess_mode="livemax",
)
TRITON_REQUESTS = Counter(
    "hilum_triton_requests_total",
    "Requests to an endpoint of Triton, canaries included: answered, outage, not_loaded, reloaded"
    " (its process had died) or wrong_answer.",
    ["endpoint", "outcome"],
)
MODEL_RELOADS = Counter(
    "hilum_model_reloads_total",
    "Models that were unloaded and loaded again because they stopped answering.",
    ["release"],
)
CANARY_READY = Gauge(
    "hilum_release_ready",
    "1 if the last canary inference gave the known answer, or no image waits for the release.",
    ["release"],
    multiprocess_mode="livemin",
)
SHADOW_STUDIES = Counter(
    "hilum_shadow_studies_total",
    "Studies that a shadow read along, compared with the reported result.",
    ["release", "shadow"],
)
SHADOW_FLIPS = Counter(
    "hilum_shadow_flips_total",
    "Findings of which one of the two says present and the other absent.",
    ["release", "shadow", "finding"],
)
SHADOW_DIFFERENCE = Histogram(
    "hilum_shadow_score_difference",
    "Difference of the two scores of a finding, without its sign.",
    ["release", "shadow"],
    buckets=(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1),
)
REPORT_SECONDS = Histogram(
    "hilum_report_seconds", "Result to encoded document.", ["kind"], buckets=_STAGE_BUCKETS
)
REPORT_FALLBACKS = Counter(
    "hilum_report_fallbacks_total",
    "Reports built by highdicom in 0.2 s instead of from a template; reasons:"
    " decisions/sr-template.md.",
    ["reason"],
)
DELIVER_SECONDS = Histogram(
    "hilum_deliver_seconds",
    "One document to one destination.",
    ["destination"],
    buckets=_STAGE_BUCKETS,
)
LAST_IMAGE_TO_ACCEPTED_SECONDS = Histogram(
    "hilum_last_image_to_accepted_seconds",
    "Last image received to SR accepted, quiet period included.",
    ["destination"],
    buckets=_STUDY_BUCKETS,
)
QUIET_END_TO_ACCEPTED_SECONDS = Histogram(
    "hilum_quiet_end_to_accepted_seconds",
    "End of the quiet period to SR accepted.",
    ["destination"],
    buckets=_STUDY_BUCKETS,
)
FILES_REMOVED = Counter(
    "hilum_files_removed_total",
    "Files deleted from the archive: age, pressure, superseded (older header, damaged) or erased.",
    ["cause"],
)
REMOVED_BYTES = Counter(
    "hilum_removed_bytes_total", "Bytes of files deleted from the archive.", ["cause"]
)
STUDIES_FORGOTTEN = Counter(
    "hilum_studies_forgotten_total",
    "Studies whose rows have left the ledger, after they were exported (retention.row_months).",
)
PROCESS_RESTARTS = Counter(
    "hilum_process_restarts_total",
    "Child processes that ended unasked and were started again.",
    ["role"],
)
CPU_SECONDS = Counter(
    "hilum_cpu_seconds_total",
    "CPU of the threads that work on a stage; see docs/figures/cpu.md.",
    ["stage"],
)
TRACE_SPANS = Counter(
    "hilum_trace_spans_total",
    "OpenTelemetry spans, sent or lost: the collector of tracing.endpoint did not take them.",
    ["outcome"],
)
SOURCE_REQUESTS = Counter(
    "hilum_source_requests_total",
    "Requests of campaigns to a source: answered, failed (it refused, or images are missing) or"
    " outage.",
    ["source", "outcome"],
)
SOURCE_IMAGES = Counter(
    "hilum_source_images_total", "Images that campaigns asked a source for.", ["source"]
)
SOURCE_REQUEST_SECONDS = Histogram(
    "hilum_source_request_seconds",
    "One request to a source: its listing and its images.",
    ["source"],
    buckets=_STUDY_BUCKETS,
)
SOURCE_WAITING = Gauge(
    "hilum_source_waiting",
    "1 while nothing is asked of a source, by cause. hours: outside its hours; daily: the day's"
    " images have been fetched; rate: images_per_second or utilisation; slow: it answers slower"
    " than at first; outage: it does not answer; live: live images, the disk, or"
    " pixels of the campaign that have to leave go first.",
    ["source", "cause"],
    multiprocess_mode="livemax",
)
WORKITEM_MANAGER_AWAY = Gauge(
    "hilum_workitem_manager_away",
    "1 while a worklist manager cannot be asked.",
    ["manager"],
    multiprocess_mode="livemax",
)
WORKITEMS_OPEN = Gauge(
    "hilum_workitems_open",
    "Work items that Hilum has claimed and not finished.",
    ["manager"],
    multiprocess_mode="livemax",
)
WORKITEMS_ENDED = Counter(
    "hilum_workitems_ended_total",
    "Work items that have ended, by state: completed, cancelled, taken or failed.",
    ["manager", "state"],
)
REQUESTS_NOT_ADMITTED = Counter(
    "hilum_http_not_admitted_total",
    "REST requests and pages that were not admitted: no_token, wrong_token, locked_out, scope, host"
    " or other_site.",
    ["reason"],
)
REQUEST_SECONDS = Histogram(
    "hilum_http_request_seconds",
    "REST requests.",
    ["route", "method", "status"],
    buckets=_STAGE_BUCKETS,
)

STATE_GAUGES: Final[Mapping[str, tuple[str, tuple[str, ...]]]] = {
    "hilum_ledger_up": ("1 if the ledger answered this scrape.", ()),
    "hilum_queue_items": (
        (
            "Open items of a stage. due: may be claimed now; waiting: the quiet period or a pause"
            " between tries runs; leased: in work."
        ),
        ("stage", "priority", "destination", "state"),
    ),
    "hilum_queue_oldest_age_seconds": (
        (
            "How long the oldest item of a stage has been due; of `deliver`, how long its document"
            " has been there."
        ),
        ("stage", "priority", "destination"),
    ),
    "hilum_recent_studies": (
        "Studies that got an image within the last hour, by priority.",
        ("priority",),
    ),
    "hilum_stuck_items": (
        "Items that failed or are dead and need a person.",
        ("stage", "destination"),
    ),
    "hilum_uncommitted_documents": (
        "Documents that a destination accepted, and has not committed to keep yet.",
        ("destination",),
    ),
    "hilum_uncommitted_oldest_age_seconds": (
        "Time since it accepted the oldest of them.",
        ("destination",),
    ),
    "hilum_withheld_documents": (
        "Documents that the settings keep from this destination, by reason.",
        ("destination", "reason"),
    ),
    "hilum_destination_paused": (
        "1 if deliveries to this destination are paused: by a person, or after HTTP 410.",
        ("destination",),
    ),
    "hilum_processes": ("Processes whose heartbeat is fresh.", ("role",)),
    "hilum_processes_ready": ("Processes that say that they can work.", ("role",)),
    "hilum_clock_offset_seconds": (
        (
            "A host's clock less that of PostgreSQL, as its server measured it at most 15 s ago;"
            " negative: behind. Not there with SQLite."
        ),
        ("host",),
    ),
    "hilum_host_problems": (
        (
            "Servers of this installation with a fault between hosts: clock, name, version,"
            " settings or archive; `hilum hosts` names them."
        ),
        ("fault",),
    ),
    "hilum_role_ready": (
        (
            "1 if a role is ready, as /health/ready?role= says; a host without the API says it of"
            " its own roles."
        ),
        ("role",),
    ),
    "hilum_rollout": (
        (
            "1 for each alias that goes from one release to another, with the release that"
            " reads new studies, the one that is to follow, how, and its state."
        ),
        ("alias", "serving", "candidate", "mode", "state"),
    ),
    "hilum_campaign_state": (
        (
            "1 for the state of a campaign, 0 for its other states. Of at most 20 campaigns: those"
            " that run, then the newest; an ended one leaves after a day."
        ),
        ("campaign", "source", "state"),
    ),
    "hilum_campaign_series": ("Series of a campaign by state.", ("campaign", "state")),
    "hilum_campaign_images": (
        (
            "Images of a campaign. expected: listed, and not here yet; received: here, and not read"
            " yet; analysed; not_analysed: read without numbers, for a reason; missing: they did"
            " not come."
        ),
        ("campaign", "state"),
    ),
    "hilum_retention_held": (
        (
            "1 if less is deleted by age than settings say. clock: it is further ahead than"
            " plausible; hour: the hour's share has left."
        ),
        ("reason",),
    ),
    "hilum_studies_recorded": ("Studies recorded since the installation (highest row number).", ()),
    "hilum_instances_recorded": (
        "SOP Instances recorded since the installation (highest row number).",
        (),
    ),
    "hilum_certificate_expiry_timestamp_seconds": (
        (
            "When a certificate of the settings expires, since the epoch. `section`: receive, api,"
            " ledger, archive, triton, audit.syslog, destinations.<name>, sources.<name> or"
            " commitment.<AE Title>; with CA behind it: an authority's."
        ),
        ("section",),
    ),
    "hilum_archive_spool_objects": (
        "Acknowledged objects on this host's disk that wait for the object store or their row.",
        (),
    ),
    "hilum_archive_free_bytes": ("Free space in the file system of the archive.", ()),
    "hilum_archive_reserve_bytes": (
        "Free space below which nothing more is accepted (receive.reserve_bytes).",
        (),
    ),
    "hilum_archive_reject_bytes": (
        "Free space below which new associations are rejected (receive.reject_bytes).",
        (),
    ),
    "hilum_archive_free_files": (
        "Free inodes in the file system of the archive; not there where it counts none.",
        (),
    ),
    "hilum_archive_reserve_files": (
        "Free inodes below which nothing more is accepted (receive.reserve_files).",
        (),
    ),
    "hilum_archive_pressure_bytes": (
        "Free space below which delivered pixels leave early (retention.pressure_free_bytes).",
        (),
    ),
}
"""Gauges read from the ledger and the disk at each scrape: name to (help, labels)."""

Sample = tuple[str, tuple[str, ...], float]


class _Charged(threading.local):
    """CPU seconds that this thread has charged to stages."""

    seconds = 0.0


_charged = _Charged()


class _Section:
    """A stretch of work on one thread."""

    __slots__ = ("_began", "_counter", "_inside")

    def __init__(self, counter: Counter) -> None:
        self._counter = counter

    def __enter__(self) -> None:
        self._inside = _charged.seconds
        self._began = thread_time()

    def __exit__(self, *_: object) -> None:
        spent = thread_time() - self._began
        before = self._inside
        own = spent - (_charged.seconds - before)
        _charged.seconds = before + spent
        if own > 0.0:
            self._counter.inc(own)


@functools.cache
def _cpu_seconds(stage: str) -> Counter:
    return CPU_SECONDS.labels(stage)


def cpu(stage: str) -> _Section:
    """Charge this thread's CPU to a stage, less the charges of sections inside.

    Never use it across an await: other tasks would be in it.
    """
    return _Section(_cpu_seconds(stage))


_HANDLER: Final = "hilum"


def configure_logging(level: str, style: str, process: str) -> None:
    """Structured logs on standard error, of libraries, too.

    No library's debug output is let through: theirs may hold patient data.
    """
    renderer: structlog.typing.Processor = (
        structlog.processors.JSONRenderer()
        if style == "json"
        else structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty())
    )
    processors: list[structlog.typing.Processor] = [
        _naming(process),
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.ExceptionRenderer(_without_messages),
        renderer,
    ]
    structlog.configure(
        processors=processors,
        wrapper_class=structlog.make_filtering_bound_logger(getattr(logging, level.upper())),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )
    silence_libraries()
    _log_libraries(processors)
    _log_uncaught()


def _log_libraries(processors: Sequence[structlog.typing.Processor]) -> None:
    """Install our handler in place of an earlier one, which logs before the settings."""
    handler = logging.StreamHandler(sys.stderr)
    handler.set_name(_HANDLER)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(processors=[_naming_library, *processors])
    )
    root = logging.getLogger()
    for earlier in [item for item in root.handlers if item.name == _HANDLER]:
        root.removeHandler(earlier)
    logging.basicConfig(level=logging.WARNING, handlers=[handler])


def _naming_library(
    _logger: object, _method: str, event: structlog.typing.EventDict
) -> structlog.typing.EventDict:
    """Format exceptions, in place of ProcessorFormatter. `stack_info` is frames, without values."""
    record = event.pop("_record")
    del event["_from_structlog"]
    return {"library": record.name, **event}


def _naming(process: str) -> structlog.typing.Processor:
    """Adds the process's name to every line, whichever thread writes it."""

    def add(
        _logger: object, _method: str, event: structlog.typing.EventDict
    ) -> structlog.typing.EventDict:
        return {"process": process, **event}

    return add


_OURS: Final = ("hilum.", "hilum_preprocessing.")
# A frame's line in a traceback that came as text from another process; the rest may belong to a
# message.
_FRAME: Final = re.compile(r'^ +File "[^"\n]+", line \d+, in \S+$', re.MULTILINE)


def traceback_without_messages(error: BaseException) -> str:
    """Return where an error comes from, with all causes.

    Of foreign exceptions only the type is kept: their messages quote the values that they failed
    on.
    """
    cause = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    before = f"{traceback_without_messages(cause)}\nwhich led to:\n" if cause is not None else ""
    frames = "".join(traceback.format_tb(error.__traceback__)).rstrip() or "\n".join(
        _FRAME.findall(str(error))
    )
    inside = (
        [traceback_without_messages(item) for item in error.exceptions]
        if isinstance(error, BaseExceptionGroup)
        else []
    )
    return "\n".join([f"{before}{frames}\n{_named(error)}".lstrip("\n"), *inside])


def _named(error: BaseException) -> str:
    kind = type(error)
    name = f"{kind.__module__}.{kind.__qualname__}".removeprefix("builtins.")
    if isinstance(error, OSError) and error.strerror:
        return f"{name}: {error.strerror}"
    return f"{name}: {error}" if name.startswith(_OURS) else name


def _without_messages(exc_info: structlog.typing.ExcInfo) -> str:
    return traceback_without_messages(exc_info[1])


def _log_uncaught() -> None:
    """Log exceptions that end a process or a thread, in place of a message on standard error."""

    def in_process(
        _kind: type[BaseException], error: BaseException, _traceback: TracebackType | None
    ) -> None:
        logger("process").critical("uncaught", exc_info=error)

    def in_thread(arguments: threading.ExceptHookArgs) -> None:
        logger("process").critical(
            "uncaught",
            thread=arguments.thread.name if arguments.thread else "",
            exc_info=arguments.exc_value,
        )

    sys.excepthook = in_process
    threading.excepthook = in_thread


def logger(room: str) -> structlog.stdlib.BoundLogger:
    """A room's logger: `log.info("event_in_snake_case", key=value)`.

    Study UIDs may appear as values, patient data never.
    """
    bound: structlog.stdlib.BoundLogger = structlog.get_logger(room=room)
    return bound


def scrape(directory: str) -> bytes:
    """Prometheus text of all processes that write into `directory`."""
    registry = CollectorRegistry()
    multiprocess.MultiProcessCollector(registry, path=directory)  # type: ignore[no-untyped-call]
    return generate_latest(registry)


def scrape_state(samples: Iterable[Sample]) -> bytes:
    """Prometheus text of `STATE_GAUGES`: (name, label values, value) each.

    Gauges of this moment, so no multi-process file holds them.
    """
    registry = CollectorRegistry()
    registry.register(_StateCollector(list(samples)))
    return generate_latest(registry)


class _StateCollector(Collector):
    def __init__(self, samples: Sequence[Sample]) -> None:
        self._samples = samples

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """All gauges that have a value."""
        families = {
            name: GaugeMetricFamily(name, text, labels=labels)
            for name, (text, labels) in STATE_GAUGES.items()
        }
        for name, labels, value in self._samples:
            families[name].add_metric(labels, value)
        yield from (family for family in families.values() if family.samples)


def forget_process(pid: int, directory: str) -> None:
    """Drop a dead process's gauges; its counters stay, as Prometheus expects."""
    multiprocess.mark_process_dead(pid, directory)  # type: ignore[no-untyped-call]
