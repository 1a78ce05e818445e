"""Tacit: one model among parties that never show each other their data."""

from typing import TYPE_CHECKING, Any

from tacit.version import VERSION as __version__

if TYPE_CHECKING:
    from tacit.api import Run, dry_run, open_run, plan, resume, run
    from tacit.errors import InputError
    from tacit.frontiers import Frontier, frontier
    from tacit.sweeps import Sweep, sweep

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
    "Frontier": "tacit.frontiers",
    "InputError": "tacit.errors",
    "Sweep": "tacit.sweeps",
    "frontier": "tacit.frontiers",
    "sweep": "tacit.sweeps",
}


def __dir__() -> list[str]:
    return __all__


def __getattr__(name: str) -> Any:
    """Load the front door only when somebody knocks: the engine alone must import with nothing but numpy."""
    if name not in __all__:
        raise AttributeError(f"module 'tacit' has no attribute '{name}'")
    import importlib  # noqa: PLC0415

    return getattr(importlib.import_module(_ELSEWHERE.get(name, "tacit.api")), name)
