"""Everything the code location offers. No computation, no file access, no environment lookups at import."""

from __future__ import annotations

import dagster as dg


@dg.definitions
def defs() -> dg.Definitions:
    return dg.Definitions()
