"""What a coordinator and a site say to each other. An upload is `Answer`, and its only field made of records is z."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, TypeAlias

from tacit.errors import InputError
from tacit.federation import SPEAKS
from tacit.types import Array


class Invitation(NamedTuple):
    """The coordinator asks a site to take part; what is trained, and at which price, is in the site's own files."""

    experiment: str
    terms: str  # the hash of the study's terms
    speaks: tuple[int, int] = (SPEAKS[0], SPEAKS[-1])  # the first and last version of the messages


class Round(NamedTuple):
    """Line 6 of Algorithm 1 over a network: w, and for every site the round the server last accepted from it."""

    experiment: str
    round: int
    bases: Mapping[str, int]
    w: Array  # [J, 1, K]


class Close(NamedTuple):
    """The study has ended; this is its model."""

    experiment: str
    rounds: int
    w: Array  # [J, 1, K]


class Ready(NamedTuple):
    """The site takes part. Invitation, Ready and Refusal stay as they are, so that any two releases can read them."""

    experiment: str
    site: str
    non_private: str  # "seeded" where its noise is no protection, else empty
    version: int  # of every later message between the two


class Answer(NamedTuple):
    """The upload of one round."""

    experiment: str
    site: str
    round: int
    z: Array  # [J, 1, K]


class Refusal(NamedTuple):
    """The site does not do what it was asked to; the reason is made of public facts and its own policy."""

    experiment: str
    site: str
    reason: str


class Closed(NamedTuple):
    """The site has closed its books on the study."""

    experiment: str
    site: str


Question: TypeAlias = Invitation | Round | Close
Reply: TypeAlias = Ready | Answer | Refusal | Closed

QUESTIONS: dict[str, type[Invitation] | type[Round] | type[Close]] = {
    "invitation": Invitation,
    "round": Round,
    "close": Close,
}
REPLIES: dict[str, type[Ready] | type[Answer] | type[Refusal] | type[Closed]] = {
    "ready": Ready,
    "answer": Answer,
    "refusal": Refusal,
    "closed": Closed,
}


def highest_common(theirs: tuple[int, int], ours: range = SPEAKS) -> int:
    """The version that a site answers an invitation with: the highest that both speak."""
    found = min(theirs[1], ours[-1])
    if found < max(theirs[0], ours[0]):
        older = "the coordinator" if theirs[1] < ours[0] else "this site"
        raise InputError(
            f"the coordinator speaks protocol {_shown(*theirs)}, and this site {_shown(ours[0], ours[-1])}: "
            f"{older} needs a newer Tacit"
        )
    return found


def _shown(first: int, last: int) -> str:
    return str(first) if first == last else f"{first} to {last}"
