"""Logging as JSON lines to stderr: the control plane's records, and commands that an audit asks about."""

from __future__ import annotations

import sys

from backhaul_codec.programs import json_logs
from backhaul_runtime.clock import SystemClock


def log_to_stderr() -> None:
    """Have everything write one JSON object a line to standard error."""
    json_logs.configure(sys.stderr, SystemClock().monotonic_s)
