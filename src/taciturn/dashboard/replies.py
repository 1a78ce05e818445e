"""JSON replies of the dashboard, and runs that cannot be read."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from taciturn.errors import InputError


def encoded(answer: Any) -> bytes:
    """JSON of what is plain already, so that it need not be gone through first."""
    return json.dumps(answer, ensure_ascii=False, allow_nan=False).encode()


def shown(text: str) -> str:
    """Text in letters that can be sent; what is no letter, such as a file name's odd bytes, is escaped."""
    return text.encode(errors="backslashreplace").decode()


WRONG = (
    *(InputError, OSError, KeyError, TypeError, ValueError, AttributeError, IndexError),
    *(ArithmeticError, RecursionError, StopIteration),
)
FOLDERS = re.compile(r"(?<![^\s'\"(])/(?:[^/\s]+/)*(?=[^/\s])")  # those of an absolute path, up to its last part


def reason(error: BaseException, root: Path, local: bool) -> str:
    """The sentence; folders are named from where the dashboard looks, and where others look too no others are."""
    match error:
        case InputError():
            text = str(error)
        case OSError():
            text = f"{error.filename or 'a file'} cannot be read: {error.strerror or error}"
        case KeyError():
            text = f"its files do not fit together: there is no {error}"
        case StopIteration():
            text = "its files do not fit together: something that must be there is not"
        case _:
            text = f"its files do not fit together: {error}"
    text = text.replace(f"{root.resolve()}/", "").replace(f"{root}/", "")
    return shown(text if local else FOLDERS.sub("", text))


def told(root: Path, local: bool, make: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """What is made of a run, or the reason why it cannot be."""
    try:
        return sendable(make())
    except WRONG as error:
        return {"damaged": reason(error, root, local)}


def sendable(made: dict[str, Any]) -> dict[str, Any]:
    """What was made, if it can be sent: damaged files may hold any number and any text."""
    try:
        encoded(made)
    except ValueError:
        raise InputError("its files hold a number that is not finite, or text that is none") from None
    return made
