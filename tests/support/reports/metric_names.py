"""Names of all time series that Hilum's /metrics can show."""

from __future__ import annotations

from prometheus_client.metrics import MetricWrapperBase

from hilum.observability import telemetry

_SUFFIXES = {"counter": ("_total",), "histogram": ("_bucket", "_sum", "_count"), "gauge": ("",)}


def metric_names() -> set[str]:
    """Counters with `_total`, histograms with their three series, gauges as they are."""
    described = [
        next(iter(metric.describe()))
        for metric in vars(telemetry).values()
        if isinstance(metric, MetricWrapperBase)
    ]
    counted = {family.name + suffix for family in described for suffix in _SUFFIXES[family.type]}
    return counted | set(telemetry.STATE_GAUGES)
