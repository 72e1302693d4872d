"""One error for everything that keeps a deployment from being priced, with a reason that code can branch on."""

from __future__ import annotations

from typing import Literal, get_args

Reason = Literal[
    "no_source",  # neither the optional extra nor a folder of the user's
    "unknown_model",
    "unknown_system",
    "unknown_backend",
    "unknown_version",
    "unknown_operator",  # a what-if factor names no operator, kind or link
    "unknown_quantisation",  # a precision nobody has
    "bad_parallelism",  # degrees that do not divide the model or contradict each other
    "unsupported_architecture",
    "missing_table",  # no file of this kind for (system, backend)
    "missing_precision",  # the file is there, this precision is not in it
    "missing_shape",  # the precision is there, this shape (heads, experts, ...) is not
    "outside_data",  # the shape is there, and no rule reaches the coordinates asked for
    "bad_file",  # a file is not what its name promises
    "no_memory",  # the weights do not fit: not one KV block is left
]
REASONS: tuple[str, ...] = get_args(Reason)


class PerfDataError(ValueError):
    """A deployment cannot be priced from the data at hand.

    `reason` is one of `REASONS`; the message names what is missing, which file would hold it, and what to do.
    """

    def __init__(self, reason: Reason, message: str) -> None:
        super().__init__(message)
        self.reason: Reason = reason
