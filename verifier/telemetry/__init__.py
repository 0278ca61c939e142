"""Metrics and logs."""

from verifier.telemetry._logs import LogFormat, LogLevel, set_up_logs
from verifier.telemetry._metrics import Metrics, MetricsServer

__all__ = ["LogFormat", "LogLevel", "Metrics", "MetricsServer", "set_up_logs"]
