"""Progress on stderr, and only where a person is looking."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Progress = Callable[[int, int], None]
DELAY_S = 0.5  # what ends sooner should not leave a flash of a bar behind


@contextmanager
def progress_bar(title: str, unit: str) -> Iterator[Progress | None]:
    """Give a `progress(done, total)` to call now and then, or None when stderr is not a terminal.

    The bar appears with the first call, so bars of several stages can be opened together.
    """
    if not sys.stderr.isatty():
        yield None
        return
    from tqdm import tqdm

    bar: tqdm | None = None

    def advance(done: int, total: int) -> None:
        nonlocal bar
        if bar is None:
            # Some terminals say that they have no columns and no rows; a bar for those would be invisible.
            columns = shutil.get_terminal_size().columns
            bar = tqdm(
                desc=title,
                unit=unit,
                total=total,
                file=sys.stderr,
                leave=False,
                delay=DELAY_S,
                unit_scale=True,
                ncols=min(columns, 100),
                nrows=24,
            )
        bar.total = total
        bar.update(done - bar.n)
        if done >= total:
            bar.close()

    try:
        yield advance
    finally:
        if bar is not None:
            bar.close()
