"""How kernels are compiled and cached. Take `kernel` from here and nowhere else."""

from __future__ import annotations

import hashlib
import importlib
import os
import re
import sys
from pathlib import Path

import numba

# When numba loads its array functions it looks for SciPy's BLAS, and loading that takes a tenth of a second of every
# process. No kernel multiplies matrices, so numba is told there is none, and everybody else may have it afterwards.
_BLAS = "scipy.linalg.cython_blas"
if _BLAS not in sys.modules:
    sys.modules[_BLAS] = None  # type: ignore[assignment]
    try:
        importlib.import_module("numba.np.arraymath")
    finally:
        del sys.modules[_BLAS]

_SIM = Path(__file__).parent
PRICES = "prices"  # folder beside the kernels, for compiled timing models


def source_key() -> str:
    """Digest of what machine code depends on: kernel sources and what they import, where they live, compiler switches.

    12 hex digits.
    """
    # The bounds-check switch changes the machine code but is not part of numba's own key.
    digest = hashlib.blake2b(f"{numba.__version__} {numba.config.BOUNDSCHECK} {_SIM}".encode(), digest_size=6)
    for path in kernel_sources():
        digest.update(path.relative_to(_SIM).as_posix().encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()


def kernel_sources() -> list[Path]:
    """Files with kernels in them, and every module of `sim` that such a file imports, directly or not."""
    texts = {path: path.read_text() for path in _SIM.rglob("*.py")}
    wanted = [path for path, text in texts.items() if re.search(r"^(?:from|import) sim\.jit\b", text, re.M)]
    found = {_SIM / "jit.py"}
    while wanted:
        path = wanted.pop()
        if path in found:
            continue
        found.add(path)
        for module in re.findall(r"^(?:from|import) sim\.([\w.]+)", texts[path], re.M):
            file = _SIM.joinpath(*module.split(".")).with_suffix(".py")
            wanted += [file] if file in texts else []
    return sorted(found)


def cache_root() -> Path:
    """Where compiled kernels are kept: `TRACEMILL_CACHE`, else inside the environment that runs us."""
    return Path(os.environ.get("TRACEMILL_CACHE") or Path(sys.prefix) / "var" / "tracemill-kernels")


# numba looks only at the file a kernel is written in: after an edit of another file it would go on running the old
# machine code, silently. A cache folder per state of the sources makes that impossible.
numba.config.CACHE_DIR = str(cache_root() / source_key())


def is_cached(*, drafting: bool = False, pools: bool = False, routing: bool = False) -> bool:
    """Whether kernels for these sources have been compiled before on this machine.

    Args:
        drafting: those of replays with speculative decoding.
        pools: those of replays on separate pools.
        routing: those of replays behind a KV-aware router. Of one kind of replay or another: files do not say.
    """
    # They share some, so each kind is known by one that nothing else compiles.
    own = {
        (False, False): "loop.run-*.nbc",
        (True, False): "*_deliver_bursts*.nbc",
        (False, True): "*_hand_out_bucket*.nbc",
        (True, True): "*_hand_out_items*.nbc",
    }
    wanted = [own[drafting, pools], *(["*_least_cost*.nbc"] if routing else [])]
    return all(any(Path(numba.config.CACHE_DIR).rglob(each)) for each in wanted)


def prune(keep: int = 3) -> None:
    """Forget the compiled kernels of all but the newest source states."""
    import shutil

    root = cache_root()
    if not root.is_dir():
        return
    folders = (p for p in root.iterdir() if p.is_dir() and p.name != PRICES)
    states = sorted(folders, key=lambda p: p.stat().st_mtime, reverse=True)
    for old in states[keep:]:
        if old.name != source_key():
            shutil.rmtree(old, ignore_errors=True)


_options = {"cache": True, "error_model": "numpy"}  # a division by zero gives inf or nan, which the price check refuses

# Counting references to arrays costs more than the work of these kernels; none of them makes an array, so none needs
# it. Kernels that only kernels call need no entry from Python either, which is most of what compiling them would cost.
kernel = numba.njit(**_options, _nrt=False, no_cpython_wrapper=True, no_cfunc_wrapper=True)
# A call passes some 250 words of array descriptions; kernels on the path of every pass that are called from one place,
# or are tiny, are pasted into their caller instead.
inlined = numba.njit(**_options, _nrt=False, no_cpython_wrapper=True, no_cfunc_wrapper=True, forceinline=True)
entry = numba.njit(**_options, _nrt=False, no_cfunc_wrapper=True)
# For set-up that makes arrays of its own.
allocating_entry = numba.njit(**_options)
