from __future__ import annotations

import gzip
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray

from taciturn.data.mnist_files import read_idx, read_images, read_labels
from taciturn.errors import InputError

from .helpers import IDX_CODES, idx_bytes

ARRAYS: st.SearchStrategy[NDArray[Any]] = st.sampled_from(sorted(IDX_CODES)).flatmap(
    lambda code: hnp.arrays(np.dtype(code), hnp.array_shapes(min_dims=1, max_dims=3, max_side=5))
)


@settings(deadline=None)
@given(ARRAYS, st.booleans())
def test_what_is_written_is_read(array: NDArray[Any], zipped: bool) -> None:
    content = idx_bytes(array)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "named.without.ending")
        path.write_bytes(gzip.compress(content) if zipped else content)
        back = read_idx(path)
    assert back.shape == array.shape
    np.testing.assert_array_equal(back, array)


def test_sizes_must_agree(tmp_path: Path) -> None:
    content = idx_bytes(np.zeros((2, 3), dtype=np.uint8))
    path = tmp_path / "a-idx"
    for found, raw in ((17, content[:-1]), (19, content + b"x")):
        path.write_bytes(raw)
        with pytest.raises(InputError, match=rf"a-idx has {found} bytes, but an IDX file of shape \(2, 3\) has 18$"):
            read_idx(path)
    path.write_bytes(content[:10])
    with pytest.raises(InputError, match=r"a-idx has 10 bytes, but its header alone has 12$"):
        read_idx(path)


@pytest.mark.parametrize("raw", [b"", b"\0\0\x08", b"\0\1\x08\1", b"\0\0\x07\1\0\0\0\0", b"\0\0\x08\0"])
def test_other_files_are_refused(tmp_path: Path, raw: bytes) -> None:
    (tmp_path / "f").write_bytes(raw)
    with pytest.raises(InputError, match=rf"f is not an IDX file: it begins with {raw[:4].hex(' ') or 'nothing'}$"):
        read_idx(tmp_path / "f")


def test_damaged_gzip_and_missing_files(tmp_path: Path) -> None:
    zipped = gzip.compress(idx_bytes(np.arange(200, dtype=np.uint8)))
    (tmp_path / "cut").write_bytes(zipped[:-10])
    with pytest.raises(InputError, match=r"cut cannot be read: "):
        read_idx(tmp_path / "cut")
    (tmp_path / "bad").write_bytes(zipped[:20] + b"\xff" * 10 + zipped[30:])
    with pytest.raises(InputError, match=r"bad cannot be read: "):
        read_idx(tmp_path / "bad")
    with pytest.raises(InputError, match=r"^there is no file .*none$"):
        read_idx(tmp_path / "none")


def test_images_and_labels_have_their_shapes(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(idx_bytes(np.zeros((2, 28, 27), dtype=np.uint8)))
    with pytest.raises(InputError, match=r"f holds uint8 of shape \(2, 28, 27\): it must be bytes of shape \(n, 28"):
        read_images(tmp_path / "f")
    with pytest.raises(InputError, match=r"f holds uint8 of shape \(2, 28, 27\): it must be bytes of shape \(n,\)"):
        read_labels(tmp_path / "f")
