"""When and how things run: the command line, and the Dagster code location."""

import os

# Read by numpy when it is loaded, which has not happened yet. With huge pages, the first touch of a large array may
# wait until the system has made room for one: for longer than most replays take. Who wants them all the same says 1.
os.environ.setdefault("NUMPY_MADVISE_HUGEPAGE", "0")
