"""Request traces in: one small file per format, one reader for all of them.

A new format is a file that says how it is recognised and how a line becomes a request, plus a line in
`registry.FORMATS`. Line numbers, quarantine, sessions, sorting and identity are the reader's business. `ingest.ingest`
does the same in bounded memory, into a folder of parquet.
"""

from assets.ingest.reader import read_trace
from assets.ingest.registry import FORMATS, detect
from assets.ingest.trace import Counts, Quarantine, Trace, TraceError

__all__ = ["FORMATS", "Counts", "Quarantine", "Trace", "TraceError", "detect", "read_trace"]
