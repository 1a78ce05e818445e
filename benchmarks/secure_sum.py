"""The cost of a secure sum: CPU at a site and at the server, and bytes, compared with float64 uploads.

    taciturn bench secure-sum [--sites 10,50,195]

All sites and the server run in one process, one after the other, and every message is bytes. `missing` a + b: a sites
are gone before they upload, b more before they answer again. Writes benchmarks/results/secure_sum.json: CPU
milliseconds of one site or of the server, the least of REPEATS slots; and bytes that one site sends in a round. Every
sum is compared with the plain one. Last, one sum of 125,984 numbers over 195 sites.

Takes two minutes.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
from benchmarks.program import arguments, write_results
from tests.secure_sum.helpers import Group, W, group, numbers_of, study_of

DIMENSION, REPEATS = 8000, 3
LARGE_SITES, LARGE_DIMENSION = 195, 125_984  # 62 classes of 2,032 features
CASES = {10: (1, 2, 1), 50: (2, 5, 2), 195: (9, 15, 5)}  # sites: colluders, missing at the upload, and afterwards
T = TypeVar("T")


def timed(call: Callable[[], T]) -> tuple[T, float]:
    """What a call returns, and its CPU milliseconds."""
    began = time.process_time()
    found = call()
    return found, 1e3 * (time.process_time() - began)


def one_slot(made: Group, slot: int, gone: int, late: int) -> dict[str, float]:
    """Run a slot; raise if the sum is not exact."""
    sites, question = len(made.members), made.question(slot)
    opening, y = made.opening(question), numbers_of(made, slot)
    alive = tuple(range(1, sites - gone + 1))
    able = alive[: len(alive) - late]
    helping = able[: opening.threshold + 2]  # two more than needed
    sent, masking = timed(lambda: {one: made.members[one].upload(question, y[one], W) for one in alive})
    masked, reading = timed(lambda: opening.add({one: opening.read_upload(one, data) for one, data in sent.items()}))
    signing = checking = 0.0
    signatures: dict[int, bytes] = {}
    up = len(sent[1])
    if gone:
        request, asking = timed(lambda: opening.alive_request(masked))
        signed, signing = timed(lambda: {one: made.members[one].agree(request) for one in helping})
        signatures, checking = timed(
            lambda: {one: opening.read_signature(one, alive, data) for one, data in signed.items()}
        )
        checking += asking
        up += len(signed[1])
    request, asking = timed(lambda: opening.share_request(alive, signatures))
    shares, revealing = timed(lambda: {one: made.members[one].reveal(request) for one in helping})
    answers, last = timed(lambda: {one: opening.read_shares(one, data) for one, data in shares.items()})
    opened, joining = timed(lambda: opening.open(masked, answers))
    if not np.array_equal(opened.total, sum(y[one] for one in alive)):
        raise RuntimeError("the sum is not exact")
    mean = up + len(shares[1]) * len(helping) / len(alive)  # not all sites are asked for shares
    return {
        "site_masks_ms": masking / len(alive),
        "site_signatures_and_shares_ms": (signing + revealing) / len(helping),
        "server_checks_ms": reading + checking + asking + last,
        "server_opening_ms": joining,
        "bytes_up_over_float64": mean / (8 * opening.study.parameters.dimension),
        "bytes_up_over_float64_of_a_helper": (up + len(shares[1])) / (8 * opening.study.parameters.dimension),
    }


def measured(sites: int) -> dict[str, Any]:
    """The costs of one size, with and without missing sites."""
    colluders, gone, late = CASES[sites]
    study = study_of(sites, colluders, sites - gone, DIMENSION)
    made, ahead = timed(lambda: group(study, slots=2 * REPEATS))
    found: dict[str, Any] = {"ahead_ms_a_slot_and_site": round(ahead / sites / (2 * REPEATS), 2)}
    for place, (name, a, b) in enumerate((("all there", 0, 0), (f"missing {gone} + {late}", gone, late))):
        slots = [one_slot(made, REPEATS * place + number, a, b) for number in range(REPEATS)]
        found[name] = {key: round(min(slot[key] for slot in slots), 3) for key in slots[0]}
        server = found[name]["server_checks_ms"] + found[name]["server_opening_ms"]
        found[name]["server_over_site_masks"] = round(server / found[name]["site_masks_ms"], 1)
    return found


def large_sum() -> dict[str, float]:
    """The costs of one sum of many numbers over many sites, some of which are missing."""
    colluders, gone, late = CASES[LARGE_SITES]
    study = study_of(LARGE_SITES, colluders, LARGE_SITES - gone, LARGE_DIMENSION)
    return {key: round(value, 3) for key, value in one_slot(group(study, slots=1), 0, gone, late).items()}


def main() -> None:
    """All sizes, or those that are named."""
    parser = arguments(__doc__, "secure_sum")
    parser.add_argument("--sites", default=",".join(map(str, CASES)), help=f"some of {', '.join(map(str, CASES))}")
    given = parser.parse_args()
    found: dict[str, Any] = {"dimension": DIMENSION}
    for sites in map(int, given.sites.split(",")):
        found[f"{sites} sites"] = measured(sites)
        print(sites, json.dumps(found[f"{sites} sites"], indent=1), flush=True)
    found[f"{LARGE_SITES} sites, {LARGE_DIMENSION} numbers"] = large_sum()
    write_results(given.out, found)


if __name__ == "__main__":
    main()
