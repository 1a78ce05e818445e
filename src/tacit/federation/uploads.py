"""What the server asks of an upload before it counts: it trusts none."""

from __future__ import annotations

import numpy as np

from tacit.errors import InputError
from tacit.federation import SPEAKS, wire
from tacit.federation.messages import Answer, Closed, Ready, Refusal, Reply
from tacit.types import Array

REASON_LIMIT = 600  # characters of a reason that are shown


class Rejected(InputError):
    """An answer that is not averaged."""


def read_reply(data: bytes, site: str, experiment: str, zero: Array) -> Reply:
    """What `site` really said, where it said something of this study in its own name."""
    if not data:
        raise Rejected("the site's engine sent no content: something kept the answer back there")
    try:
        found = wire.reply(data, wire.HEADER_LIMIT + 1024 + zero.nbytes)
    except wire.Malformed as error:
        raise Rejected(str(error)) from None
    if found.site != site:
        raise Rejected(f"it was sent by {site} in the name of {shown(found.site)!r}")
    if found.experiment != experiment and not isinstance(found, Refusal):
        raise Rejected("it is of another study")
    return found


def read_answer(data: bytes, site: str, experiment: str, t: int, zero: Array) -> Answer | Refusal:
    """An upload of round t, or the reason there is none."""
    found = read_reply(data, site, experiment, zero)
    if isinstance(found, Refusal):
        return found
    if not isinstance(found, Answer):
        raise Rejected("it is not an answer to a round")
    if found.round != t:
        raise Rejected(f"it is of round {found.round}, and round {t} was asked for")
    if found.z.shape != zero.shape:
        raise Rejected(f"its shape is {found.z.shape}, and parameters have {zero.shape}")
    if found.z.dtype != zero.dtype:
        raise Rejected(f"its numbers are {found.z.dtype}, and parameters are {zero.dtype}")
    if not np.isfinite(found.z).all():
        raise Rejected("its numbers are not all finite")
    return found


def read_ready(data: bytes, site: str, experiment: str, zero: Array, speaks: range = SPEAKS) -> Ready | Refusal:
    """The answer to an invitation that offered the versions in `speaks`."""
    found = read_reply(data, site, experiment, zero)
    if not isinstance(found, (Ready, Refusal)):
        raise Rejected("it is not an answer to an invitation")
    if isinstance(found, Ready) and found.version not in speaks:
        raise Rejected(f"it chose protocol {found.version!r:.12}, and {speaks[0]} to {speaks[-1]} were offered")
    return found


def read_closed(data: bytes, site: str, experiment: str, zero: Array) -> Closed | Refusal:
    """The answer to the end of a study."""
    found = read_reply(data, site, experiment, zero)
    if not isinstance(found, (Closed, Refusal)):
        raise Rejected("it is not an answer to the end of a study")
    return found


def shown(text: str) -> str:
    """Words from elsewhere, fit for a terminal and a log."""
    return "".join(sign if sign.isprintable() else "?" for sign in text[:REASON_LIMIT])
