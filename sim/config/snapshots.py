"""Constants out of a file that `tracemill calibrate` wrote."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

MAKE_ONE = "make one with tracemill calibrate LOG --deployments RUN.yaml -o FILE"


def read_constants(file: Path, called: str, none: str) -> dict[str, Any]:
    """The section `host_constants`.

    Args:
        called: what messages call the file.
        none: what it then is said to be.

    Raises:
        ValueError: it cannot be read, is no JSON, or holds no constants.
    """
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise ValueError(f"{called} {file}: {error.strerror}; {MAKE_ONE}") from error
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{called} {file} {none}: it is no JSON; {MAKE_ONE}") from error
    constants = found.get("host_constants") if isinstance(found, dict) else None
    if not isinstance(constants, dict) or not constants:
        raise ValueError(f"{called} {file} {none}: it has no section host_constants; {MAKE_ONE}")
    return constants


def as_number(constants: dict[str, Any], name: str, told: str) -> float:
    """A constant as a number.

    Raises:
        ValueError: it is absent, or none.
    """
    try:
        return float(constants[name])
    except KeyError:
        raise ValueError(f"{told}: {name} is missing; {MAKE_ONE}") from None
    except (ValueError, TypeError, OverflowError):
        raise ValueError(f"{told}: {name}={constants[name]!r} is no number; {MAKE_ONE}") from None
