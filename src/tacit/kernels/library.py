"""The compiled library, where it was built: no more than C functions in a file beside this one."""

from __future__ import annotations

import ctypes
from ctypes import c_double, c_int, c_int64, c_void_p
from functools import cache
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent
LEVELS = {1: "any processor", 3: "AVX2", 4: "AVX-512"}  # x86-64-v3, x86-64-v4


@cache
def library() -> ctypes.CDLL | None:
    """The library, or None where the package was installed without a C compiler."""
    for suffix in EXTENSION_SUFFIXES:
        path = FOLDER / f"_compiled{suffix}"
        if path.exists():
            return _declared(ctypes.CDLL(str(path)))
    return None


@cache
def level() -> int:
    """The instructions this processor has, a key of LEVELS."""
    found = library()
    return 0 if found is None else int(found.tacit_level())


def address(array: Any) -> int | None:
    """Where a contiguous array begins; None stays None."""
    return None if array is None else array.__array_interface__["data"][0]  # .ctypes.data, in a third of the time


def _declared(lib: ctypes.CDLL) -> ctypes.CDLL:
    lib.tacit_pass.argtypes = [c_void_p, c_int, c_int]
    lib.tacit_count.argtypes, lib.tacit_count.restype = [c_void_p, c_int64, c_int64, c_int, c_void_p], c_int64
    lib.tacit_pack.argtypes = [c_void_p, c_int64, c_int64, c_int, c_void_p, c_void_p, c_void_p]
    shape: list[Any] = [c_int64, c_int64, c_int64, c_int, c_int]
    lib.tacit_noise.argtypes, lib.tacit_noise.restype = [c_int, c_void_p, c_void_p, c_double, *shape, c_void_p], None
    lib.tacit_prepare_noise()
    return lib
