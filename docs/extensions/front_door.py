"""The directive `front-door` documents everything in a module's `__all__`, so that no name is missed."""

from __future__ import annotations

import importlib
import inspect
from typing import Any

from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

ORDER = ("autofunction", "autoclass", "autoexception")


class FrontDoor(SphinxDirective):
    """Document functions first, then classes, then exceptions."""

    required_arguments = 1  # the module's name

    def run(self) -> list[Any]:
        """Return the nodes of the page."""
        module = importlib.import_module(self.arguments[0])
        names = [name for name in module.__all__ if not name.startswith("_")]
        kinds = {name: _kind(getattr(module, name)) for name in names}
        ordered = sorted(names, key=lambda name: ORDER.index(kinds[name]))
        return self.parse_text_to_nodes(
            "\n\n".join(_part(kinds[name], f"{module.__name__}.{name}") for name in ordered)
        )


def _kind(found: Any) -> str:
    if not inspect.isclass(found):
        return "autofunction"
    return "autoexception" if issubclass(found, BaseException) else "autoclass"


def _part(kind: str, name: str) -> str:
    return f".. {kind}:: {name}" + ("\n   :members:" if kind == "autoclass" else "")


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the directive."""
    app.add_directive("front-door", FrontDoor)
    return {"parallel_read_safe": True}
