"""The CPU that a secure sum adds to a site's round: one real agent, with journal and ledger.

    taciturn bench sum-round [--sites 10,50,195] [--rounds 12] [--out FILE]

A site with four records of sixteen columns, 8,002 numbers. The other sites are their rules alone, in this process, and
are not counted. A round is a masked upload and shares; the plain round is that of the same method with noise at the
site. Everything is written where the system's temporary files are.

Takes a minute.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.program import arguments, write_results
from tests.data.helpers import schema_text
from tests.federation import helpers
from tests.federation.helpers import EXPERIMENT
from tests.federation.sum_adversary import AgentVictim, Crew
from tests.federation.sum_helpers import SUM_ACCEPT, SumFederation, make_sums
from tests.secure_sum.helpers import deliveries_of, directory_of, roll_of

from taciturn.federation import messages as wire
from taciturn.federation.agent import SiteAgent
from taciturn.federation.identity import Identity
from taciturn.federation.messages import Invitation, RoundRequest
from taciturn.federation.release import ReleaseGate
from taciturn.secure_sum.epoch import EpochRules
from taciturn.secure_sum.epoch_messages import EpochRequest
from taciturn.secure_sum.slot_messages import ShareRequest

COLUMNS: dict[str, list[Any]] = {f"column{n}": [f"v{k}" for k in range(250)] for n in range(16)}
CASES = {10: (1, 2), 50: (2, 5), 195: (9, 15)}  # sites: colluders, missing


def write_table(path: Path, rows: int = 4) -> None:
    """Write a table with a value of each column in every row."""
    lines = [[*COLUMNS, "ill"], *([*(f"v{(row + n) % 250}" for n in range(16)), "yes"] for row in range(rows))]
    path.write_text("\n".join(",".join(line) for line in lines) + "\n")


def study(sites: int, rounds: int, summed: bool, root: Path) -> tuple[SumFederation, tuple[str, ...]]:
    """Write the files of a study with one real site."""
    colluders, missing = CASES[sites]
    names = tuple(f"s{number:03}" for number in range(1, sites + 1))
    sums = {"trust": "secure-sum", "colluders": colluders, "missing": missing, "reserve": 3}
    plain = {"trust": "agents", "missing": None, "reserve": None}
    settings = {"features": "bins", "rounds": rounds, "total_records": 20 * sites, "noise_multiplier": 200.0}
    changes: dict[str, Any] = {"study": settings | (sums if summed else plain) | {"total_epsilon": 9.0}}
    made = make_sums(root, changes, names=names, only=names[:1])
    made.change(names[0], {"accept": SUM_ACCEPT, "data": {"total_records": 20 * sites}})
    write_table(root / names[0] / "table.csv")
    return made, names


class Clock:
    """Adds up the CPU of one site's answers, with the check of what leaves."""

    def __init__(self, agent: SiteAgent, site: Any) -> None:
        self.agent, self.site, self.gate = agent, site, ReleaseGate(agent.journal)
        self.spent = 0.0

    def answer(self, message: Any) -> bytes:
        """Return the agent's answer."""
        data, began = wire.encode(message), time.process_time()
        found = self.agent.answer(data)
        self.gate.check(self.site, found)
        self.spent += time.process_time() - began
        reply = wire.decode_reply(found, 1 << 26)
        if isinstance(reply, wire.Refusal):
            raise RuntimeError(reply.reason)
        return reply.data if isinstance(reply, wire.SumAnswer) else b""

    def rounds(self, count: int, one: Callable[[int], None]) -> float:
        """Return the median CPU milliseconds of some rounds."""
        found = []
        for t in range(1, count + 1):
            self.spent = 0.0
            one(t)
            found.append(1e3 * self.spent)
        return statistics.median(found)


def plain_round(sites: int, rounds: int, root: Path) -> float:
    """Return the CPU milliseconds of a round with noise at the site."""
    federation, names = study(sites, rounds, False, root)
    with federation.agent(names[0], None) as agent:
        clock, zero = Clock(agent, federation.site(names[0])), federation.agreement.zero
        clock.answer(Invitation(EXPERIMENT, federation.terms.digest))
        bases = dict.fromkeys(names, 0)
        return clock.rounds(
            rounds, lambda t: _nothing(clock.answer(RoundRequest(EXPERIMENT, t, bases | {names[0]: t - 1}, zero)))
        )


def summed_round(sites: int, rounds: int, root: Path) -> float:
    """Return the CPU milliseconds of a round of a secure sum: an upload and shares."""
    federation, names = study(sites, rounds, True, root)
    with federation.agent(names[0], None) as agent:
        clock = Clock(agent, federation.site(names[0]))
        clock.answer(Invitation(EXPERIMENT, federation.terms.digest))
        made = Crew(federation, {names[0]: agent})
        _begin_epoch(made, names, root, rounds)

        def one(t: int) -> None:
            question = made.question(t - 1, round_number=t)
            clock.answer(wire.SumRoundRequest(EXPERIMENT, question.to_bytes(), made.models[question.w]))
            request = ShareRequest(question, question.roster, (), b"").to_bytes()
            clock.answer(wire.SumRequest(EXPERIMENT, wire.REVEAL, request))

        return clock.rounds(rounds, one)


def _begin_epoch(made: Crew, names: tuple[str, ...], root: Path, slots: int) -> None:
    study, victim, everybody = made.study, AgentVictim(made, 1), frozenset(range(1, len(names) + 1))
    signers = {number: Identity.open(root / f"{name}.identity") for number, name in enumerate(names, 1) if number > 1}
    rules = {number: EpochRules(study, number, signer, everybody) for number, signer in signers.items()}
    mine = victim.step(wire.ANNOUNCE, EpochRequest(0, slots).to_bytes())
    announced = {number: one.announce(0, slots) for number, one in rules.items()}
    made.directory = directory_of(study, {1: mine} | {number: data for number, (_, data) in announced.items()})
    shown = made.directory.to_bytes()
    deal = victim.step(wire.DEAL, shown)
    dealt = {number: one.deal(announced[number][0], shown) for number, one in rules.items()}
    boxes = deliveries_of(made.directory, {1: deal} | {number: data for number, (_, data) in dealt.items()})
    held = {1: victim.step(wire.KEEP, boxes[1])}
    held |= {number: one.keep(dealt[number][0], boxes[number])[1] for number, one in rules.items()}
    victim.step(wire.BEGIN, roll_of(study, made.directory, held))


def _nothing(data: bytes) -> None:
    """Drop an answer."""


def main() -> None:
    """All sizes, or those that are named."""
    parser = arguments(__doc__, "sum_round")
    parser.add_argument("--sites", default=",".join(map(str, CASES)), help=f"some of {', '.join(map(str, CASES))}")
    parser.add_argument("--rounds", type=int, default=12)
    given = parser.parse_args()
    helpers.SCHEMA = schema_text("ill", ["no", "yes"], **COLUMNS)
    found: dict[str, Any] = {"numbers": 8002, "rounds": given.rounds}
    for sites in map(int, given.sites.split(",")):
        with tempfile.TemporaryDirectory() as folder:
            os.environ["XDG_STATE_HOME"] = f"{folder}/state"
            plain = plain_round(sites, given.rounds, Path(folder) / "plain")
            summed = summed_round(sites, given.rounds, Path(folder) / "sums")
        found[f"{sites} sites"] = {
            "plain_cpu_ms": round(plain, 2),
            "secure_sum_cpu_ms": round(summed, 2),
            "added_cpu_ms": round(summed - plain, 2),
        }
        print(sites, found[f"{sites} sites"], flush=True)
    write_results(given.out, found)


if __name__ == "__main__":
    main()
