"""Errors that the person at the keyboard can mend: their message is the answer, no traceback needed."""

from __future__ import annotations

from assets.ingest.trace import TraceError
from perf_db.gpu.errors import PerfDataError
from perf_db.layout import StoreError
from sim.config import ConfigError
from sim.errors import ReplayError

INPUT_ERRORS: tuple[type[Exception], ...] = (ConfigError, TraceError, ReplayError, StoreError, PerfDataError)
