"""Tacit: one model among parties that never show each other their data."""

from typing import TYPE_CHECKING, Any

from tacit.version import VERSION as __version__

if TYPE_CHECKING:
    from tacit.api import Run, open_run, plan, resume, run
    from tacit.errors import InputError

__all__ = ["InputError", "Run", "__version__", "open_run", "plan", "resume", "run"]


def __dir__() -> list[str]:
    return __all__


def __getattr__(name: str) -> Any:
    """Load the front door only when somebody knocks: the engine alone must import with nothing but numpy."""
    if name not in __all__:
        raise AttributeError(f"module 'tacit' has no attribute '{name}'")
    import importlib  # noqa: PLC0415

    return getattr(importlib.import_module("tacit.errors" if name == "InputError" else "tacit.api"), name)
