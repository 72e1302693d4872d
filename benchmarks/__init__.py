"""Benchmarks: `python -m benchmarks --help`. Figures are in RESULTS.md, raw ones in results.json."""

# Points of curves run as commands do, so how numpy takes memory is settled before it is loaded.
import pipelines as pipelines
