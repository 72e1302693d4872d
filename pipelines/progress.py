"""Progress on stderr, and only where a person is looking."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Progress = Callable[[int, int], None]


@contextmanager
def progress_bar(title: str, unit: str = "request") -> Iterator[Progress | None]:
    """Give a `progress(done, total)` to call now and then, or None when stderr is not a terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    from tqdm import tqdm

    # `delay`: a replay that ends at once should not leave a flash of a bar behind.
    with tqdm(desc=title, unit=unit, file=sys.stderr, leave=False, delay=0.5, unit_scale=True) as bar:

        def advance(done: int, total: int) -> None:
            bar.total = total
            bar.update(done - bar.n)

        yield advance
