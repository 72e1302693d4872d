"""Self-contained HTML pages: one about a run, one about a diff. They ask no network for anything."""
