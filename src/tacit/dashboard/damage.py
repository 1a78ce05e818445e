"""What is wrong with a run, said in a sentence: one damaged run never hides the others."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from tacit.errors import InputError

WRONG = (InputError, OSError, KeyError, TypeError, ValueError, AttributeError, IndexError)


def reason(error: BaseException, root: Path) -> str:
    """The sentence; folders are named from where the dashboard looks."""
    match error:
        case InputError():
            text = str(error)
        case OSError():
            text = f"{error.filename or 'a file'} cannot be read: {error.strerror or error}"
        case KeyError():
            text = f"its files do not fit together: there is no {error}"
        case _:
            text = f"its files do not fit together: {error}"
    return text.replace(f"{root.resolve()}/", "").replace(f"{root}/", "")


def told(root: Path, make: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """What is made of a run, or the reason why it cannot be."""
    try:
        return make()
    except WRONG as error:
        return {"damaged": reason(error, root)}
