"""Benchmarks: `python -m benchmarks --help`. Figures are in RESULTS.md, raw ones in results.json."""

import pipelines as pipelines  # points of curves run as commands do: how numpy takes memory is settled before it is loaded
