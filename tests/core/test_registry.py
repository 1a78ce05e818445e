"""A registry imports its components once and then only looks names up."""

from __future__ import annotations

import pkgutil
import sys
from pathlib import Path
from typing import Any

import pytest

from taciturn.core.registry import Registry
from taciturn.errors import InputError


@pytest.fixture
def shapes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Registry[str]:
    """A registry whose package has two modules, each of which registers a component."""
    package = tmp_path / "shapes_for_test"
    package.mkdir()
    (package / "__init__.py").write_text(
        "from taciturn.core.registry import Registry\nSHAPES = Registry('shape', __name__)\n"
    )
    for name in ("circle", "square"):
        code = f"from shapes_for_test import SHAPES\nSHAPES.register('{name}')('{name.upper()}')\n"
        (package / f"{name}.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    for name in [name for name in sys.modules if name.startswith("shapes_for_test")]:
        monkeypatch.delitem(sys.modules, name)
    import shapes_for_test  # type: ignore[import-not-found]

    found: Registry[str] = shapes_for_test.SHAPES
    return found


def test_the_folder_is_listed_once(shapes: Registry[str], monkeypatch: pytest.MonkeyPatch) -> None:
    listings, iter_modules = [], pkgutil.iter_modules

    def counted(*arguments: Any) -> Any:
        listings.append(arguments)
        return iter_modules(*arguments)

    monkeypatch.setattr(pkgutil, "iter_modules", counted)
    for _ in range(3):
        assert shapes["circle"] == "CIRCLE" and "square" in shapes and list(shapes) == ["circle", "square"]
        with pytest.raises(InputError, match="did you mean 'circle'"):
            shapes["circel"]
    assert len(listings) == 1


def test_a_name_is_registered_once(shapes: Registry[str]) -> None:
    shapes.register("star")("STAR")
    assert shapes["star"] == "STAR"
    with pytest.raises(ValueError, match="'star'"):
        shapes.register("star")("another")
