"""The errors a user is meant to see, one class for each meaning, and the sentences they say."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from pathlib import Path


class InputError(ValueError):
    """Something given to Tacit is wrong; the message is one sentence that says what, and what would be right."""


class Everywhere(InputError):
    """An error that all processes of a run have in common, so that only the first of them says it."""


class Diverged(Everywhere):
    """A run's numbers are no longer finite; a sweep or a frontier notes it and goes on with other points."""


class PrivacyViolation(BaseException):
    """Something was released that the run's plan does not cover: everything stops, and nothing of it may be shown.

    It is neither an InputError nor an Exception, as KeyboardInterrupt is none: code that goes on after an error, ours
    or a library's (a search of scikit-learn's gives a failed fit the score nan), must not go on after this one. The
    command line ends with exit code 3.
    """


class LedgerWarning(UserWarning):
    """Something was done that a ledger does not show, or not yet; the message is one sentence that says what."""


def no_such(kind: str, name: object, choices: Iterable[str]) -> InputError:
    """An unknown name: say it, offer the nearest, list the choices.

    >>> str(no_such("loss", "hing", ["softmax", "hinge"]))
    "no loss 'hing' (did you mean 'hinge'?): there are hinge, softmax"
    """
    names = sorted(choices)
    verb = "there is" if len(names) == 1 else "there are"
    return InputError(f"no {kind} '{name}'{nearest(name, names)}: {verb} {', '.join(names)}")


def nearest(name: object, choices: Iterable[str]) -> str:
    """The hint that goes behind an unknown name, where a choice is near."""
    near = difflib.get_close_matches(str(name), sorted(choices), n=1)
    return f" (did you mean '{near[0]}'?)" if near else ""


def absent(kind: str, path: Path, advice: str = "") -> InputError:
    """A file or folder that is not there: say it, offer the nearest of its neighbours, and what else to do."""
    try:
        neighbours = sorted(other.name for other in path.parent.iterdir())
    except OSError:
        neighbours = []
    near = difflib.get_close_matches(path.name, neighbours, n=1)
    hint = f" (did you mean '{path.parent / near[0]}'?)" if near else ""
    return InputError(f"there is no {kind} {path}{hint}{f': {advice}' if advice else ''}")
