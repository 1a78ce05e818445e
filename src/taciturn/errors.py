"""Exceptions, one class per meaning, and helpers that word the most common messages.

Everything a caller can act on is a `TaciturnError`; the command line prints its message and exits with code 2. A
`PrivacyViolation` is not one of them, on purpose.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterable
from pathlib import Path

ALIKE = 0.7  # of the characters of two file names
TABLE = "the table"
MAX_SHOWN = 200  # characters of a value in a message


class TaciturnError(ValueError):
    """Base class of all errors that Taciturn raises for its caller to handle.

    Parameters
    ----------
    message : str
        One sentence that names the value, the rule it breaks and the choices.
    collective : bool, default False
        Whether every process of a distributed run raises the same error, so that only the first one prints it.
    """

    def __init__(self, message: str, *, collective: bool = False) -> None:
        super().__init__(message)
        self.collective = collective


class InputError(TaciturnError):
    """A setting, argument or input file is wrong."""


class MissedRound(InputError):
    """An agent cannot answer a round, because it missed an earlier one that the method needs; it names rounds only."""


class BudgetExhausted(TaciturnError):
    """A study does not fit into the privacy budget that is left."""


class LedgerTampered(TaciturnError):
    """A ledger's hash chain, head or signature does not verify."""


class CorruptFile(TaciturnError):
    """A file of a run, journal or key store is damaged, truncated or missing."""


class TrainingDiverged(TaciturnError):
    """A run's numbers are no longer finite; sweeps and frontiers record it and continue with other points."""


class PeerLost(TaciturnError):
    """Another process or site of a run stopped answering."""


class PrivacyViolation(BaseException):
    """Something was released that the run's plan does not cover: everything stops, and nothing of it may be shown.

    Like KeyboardInterrupt it is not an Exception: code that continues after an error (a search of scikit-learn gives a
    failed fit the score nan) must not continue after this one. The command line ends with exit code 3.
    """


class Interrupted(Exception):
    """Training was asked to stop. Everything done is on the disk."""


class LedgerWarning(UserWarning):
    """Something that was done is not, or not yet, in a ledger; the message says what."""


def kind_of(value: object) -> str:
    """Return the type of a value in words, without showing the value.

    >>> kind_of([63, "m"]), kind_of(None)
    ('a list', 'None')
    """
    name = type(value).__name__
    return "None" if value is None else f"{'an' if name[0].lower() in 'aeiou' else 'a'} {name}"


def shown(value: object) -> str:
    """Return a value for an error message: numbers and short strings as they are, anything else by its type alone.

    A value may be a data frame, a row or the text of a file by mistake, and a message must not show records.

    >>> shown(0.5), shown("fast"), shown([63, "m"]), shown("age,sex\\n63,m")
    ('0.5', "'fast'", 'a list', 'a text of 12 characters')
    """
    if isinstance(value, str):
        plain = len(value) <= MAX_SHOWN and value.isprintable()
        return repr(value) if plain else f"a text of {len(value)} characters"
    return str(value) if isinstance(value, bool | int | float | os.PathLike) else kind_of(value)


def unknown_name(kind: str, name: object, choices: Iterable[str], where: str = "") -> InputError:
    """Return the error for an unknown name, with the nearest and all choices, and the section where it stands.

    >>> str(unknown_name("loss", "hing", ["softmax", "hinge"]))
    "no loss 'hing' (did you mean 'hinge'?): there are hinge, softmax"
    >>> str(unknown_name("key", "colum", ["column"], "[agent]"))
    "no key 'colum' in [agent] (did you mean 'column'?): there is column"
    """
    names = sorted(choices)
    verb = "there is" if len(names) == 1 else "there are"
    place = f" in {where}" if where else ""
    return InputError(f"no {kind} '{name}'{place}{nearest(name, names)}: {verb} {', '.join(names)}")


def nearest(name: object, choices: Iterable[str]) -> str:
    """Return the hint for an unknown name if a choice is similar, else an empty string."""
    near = difflib.get_close_matches(str(name), sorted(choices), n=1)
    return f" (did you mean '{near[0]}'?)" if near else ""


def unknown_column(name: object, columns: Iterable[str], where: str = TABLE) -> InputError:
    """Return the error for a missing column. The only name it may show is the wanted one in another case.

    >>> str(unknown_column("Age", ["age", "sex"]))
    "no column 'Age' among the 2 of the table: it has 'age'"
    >>> str(unknown_column("age", ["63", "m"]))
    "no column 'age' among the 2 of the table: its names look like a record, so the header may be missing"
    """
    names = list(columns)
    similar = next((own for own in names if own.casefold() == str(name).casefold()), "")
    own_names = ": compare it with the others, which messages do not show" if where == TABLE else ""
    hint = f": it has '{similar}'" if similar else missing_header(names) or own_names
    return InputError(f"no column '{name}' among the {len(names)} of {where}{hint}")


def missing_header(columns: Iterable[str]) -> str:
    """Return a hint if the names of columns may be a record, as those of a file that was read without its header.

    Names of columns are public, but such names are not, so messages show only names that their reader has given.
    """
    doubtful = any(not name or name.startswith("Unnamed: ") or _is_number(name) for name in columns)
    return ": its names look like a record, so the header may be missing" if doubtful else ""


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def missing_file(kind: str, path: Path, advice: str = "") -> InputError:
    """Return the error for a missing file or folder, with the most similar name in the same folder, and advice."""
    try:
        files = sorted(path.parent.iterdir(), key=lambda other: (other.suffix == path.suffix, other.name))
        neighbours = {other.stem: other for other in files}  # of equal stems the one with the same ending
    except OSError:
        neighbours = {}
    near = difflib.get_close_matches(path.stem, neighbours, n=1, cutoff=ALIKE)  # all have the same few endings
    hint = f" (did you mean '{neighbours[near[0]]}'?)" if near else ""
    return InputError(f"there is no {kind} {path}{hint}{f': {advice}' if advice else ''}")
