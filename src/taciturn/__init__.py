"""Taciturn: one model among parties that never show each other their data."""

from typing import TYPE_CHECKING, Any

from taciturn.version import VERSION as __version__

if TYPE_CHECKING:
    from taciturn.api import Run, dry_run, open_run, plan, resume, run
    from taciturn.errors import InputError
    from taciturn.experiments import Frontier, Sweep, frontier, sweep

__all__ = [
    "Frontier",
    "InputError",
    "Run",
    "Sweep",
    "__version__",
    "dry_run",
    "frontier",
    "open_run",
    "plan",
    "resume",
    "run",
    "sweep",
]
_ELSEWHERE = {
    "Frontier": "taciturn.experiments",
    "InputError": "taciturn.errors",
    "Sweep": "taciturn.experiments",
    "frontier": "taciturn.experiments",
    "sweep": "taciturn.experiments",
}


def __dir__() -> list[str]:
    return __all__


def __getattr__(name: str) -> Any:
    """Load the front door only when somebody knocks: the engine alone must import with nothing but numpy."""
    if name not in __all__:
        raise AttributeError(f"module 'taciturn' has no attribute '{name}'")
    import importlib

    return getattr(importlib.import_module(_ELSEWHERE.get(name, "taciturn.api")), name)
