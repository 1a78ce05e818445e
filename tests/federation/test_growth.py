"""The cost of a round at a site does not grow with the number of rounds, in database steps and bytes read."""

from __future__ import annotations

from pathlib import Path

import pytest

from taciturn.federation import messages as wire
from taciturn.federation.messages import RoundRequest
from taciturn.federation.release import ReleaseGate
from taciturn.secure_sum import parameters
from taciturn.secure_sum.slot_messages import ShareRequest
from tests.federation.helpers import EXPERIMENT, SITES, invite, make_federation
from tests.federation.sum_adversary import NOTHING, crew

ROUNDS, SAMPLE = 240, 20
EPOCH, SLOTS = 10, 60
STEPS = 20  # of the database, between two counts


@pytest.mark.linux
def test_a_late_round_costs_what_an_early_one_did(tmp_path: Path) -> None:
    study = {"rounds": ROUNDS, "noise_multiplier": None}
    federation = make_federation(tmp_path, {"study": study}, {"rounds_max": ROUNDS}, only=SITES[:1])
    site, w = federation.site("north"), federation.agreement.zero
    counts = []
    with federation.agent("north") as agent:
        release, steps = ReleaseGate(agent.journal), [0]
        invite(agent, federation)
        agent.journal.database.connection.set_progress_handler(lambda: steps.append(steps.pop() + 1), STEPS)
        for t in range(1, ROUNDS + 1):
            before = steps[0], _bytes_read()
            data = agent.answer(wire.encode(RoundRequest(EXPERIMENT, t, dict.fromkeys(SITES, t - 1), w)))
            release.check(site, data)
            counts.append((steps[0] - before[0], _bytes_read() - before[1]))
    for early, late in zip(_sums(counts[SAMPLE : 2 * SAMPLE]), _sums(counts[-SAMPLE:]), strict=True):
        assert 0 < late <= 1.1 * early


@pytest.mark.linux
def test_a_late_slot_of_a_secure_sum_costs_what_an_early_one_did(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Six epochs of ten slots: what one of three sites needs in the second epoch and in the last one."""
    monkeypatch.setattr(parameters, "EPOCH_SLOTS", EPOCH)
    counts = []
    with crew(tmp_path, ("s1", "s2", "s3"), missing=0, begun=False, rounds=SLOTS) as made:
        made.invite()
        steps, victim = [0], made.members[1]
        victim.agent.journal.database.connection.set_progress_handler(lambda: steps.append(steps.pop() + 1), STEPS)
        for number in range(SLOTS):
            if number % EPOCH == 0:
                made.begin_epoch(number // EPOCH, EPOCH)
            question = made.question(number % EPOCH, round_number=number + 1)
            before = steps[0], _bytes_read()
            victim.upload(question, NOTHING, b"")
            victim.reveal(ShareRequest(question, question.roster, (), b"").to_bytes())
            counts.append((steps[0] - before[0], _bytes_read() - before[1]))
    early, late = counts[EPOCH : 2 * EPOCH], counts[-EPOCH:]
    for first, last in zip(_sums(early), _sums(late), strict=True):
        assert 0 < last <= 1.2 * first


def _sums(counts: list[tuple[int, int]]) -> list[int]:
    return [sum(column) for column in zip(*counts, strict=True)]


def _bytes_read() -> int:
    return int(Path("/proc/self/io").read_text().split()[1])
