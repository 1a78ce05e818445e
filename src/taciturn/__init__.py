"""Taciturn: train one model among parties that never show each other their data.

Names are imported from their modules on first use, so that `import taciturn` needs nothing but numpy.
"""

import logging
from importlib import import_module
from typing import TYPE_CHECKING, Any

from taciturn.version import VERSION as __version__

if TYPE_CHECKING:
    from taciturn.api import dry_run, open_run, plan, resume, run
    from taciturn.data.schema import Schema
    from taciturn.data.schema_builder import SchemaBuilder
    from taciturn.errors import (
        BudgetExhausted,
        CorruptFile,
        InputError,
        Interrupted,
        LedgerTampered,
        PeerLost,
        PrivacyViolation,
        TaciturnError,
        TrainingDiverged,
    )
    from taciturn.experiments import Frontier, Sweep, frontier, sweep
    from taciturn.result import Run

__all__ = [
    "BudgetExhausted",
    "CorruptFile",
    "Frontier",
    "InputError",
    "Interrupted",
    "LedgerTampered",
    "PeerLost",
    "PrivacyViolation",
    "Run",
    "Schema",
    "SchemaBuilder",
    "Sweep",
    "TaciturnError",
    "TrainingDiverged",
    "__version__",
    "dry_run",
    "frontier",
    "open_run",
    "plan",
    "resume",
    "run",
    "sweep",
]
_MODULES = {
    **dict.fromkeys(
        ("BudgetExhausted", "CorruptFile", "InputError", "Interrupted", "LedgerTampered"), "taciturn.errors"
    ),
    **dict.fromkeys(("PeerLost", "PrivacyViolation", "TaciturnError", "TrainingDiverged"), "taciturn.errors"),
    **dict.fromkeys(("Frontier", "Sweep", "frontier", "sweep"), "taciturn.experiments"),
    "Run": "taciturn.result",
    "Schema": "taciturn.data.schema",
    "SchemaBuilder": "taciturn.data.schema_builder",
}

logging.getLogger(__name__).addHandler(logging.NullHandler())


def __dir__() -> list[str]:
    return __all__


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'taciturn' has no attribute '{name}'")
    return getattr(import_module(_MODULES.get(name, "taciturn.api")), name)
