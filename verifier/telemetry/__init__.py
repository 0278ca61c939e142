"""Metrics, logs and traces."""

from verifier.telemetry._logs import LogFormat, LogLevel, set_up_logs
from verifier.telemetry._metrics import Metrics, MetricsServer
from verifier.telemetry._totals import Totals, quantile
from verifier.telemetry._tracing import CallSpan, Tracing, open_tracing

__all__ = [
    "CallSpan",
    "LogFormat",
    "LogLevel",
    "Metrics",
    "MetricsServer",
    "Totals",
    "Tracing",
    "open_tracing",
    "quantile",
    "set_up_logs",
]
