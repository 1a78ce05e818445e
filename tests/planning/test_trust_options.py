"""What a plan says about secure sums: the price of colluders, missing agents and the reserve, and what they buy."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import taciturn
from taciturn.planning.tradeoffs import PlanReport, plan_facts
from tests.cli.helpers import taciturn as command
from tests.data.helpers import schema_text

SUM: dict[str, Any] = {"trust": "secure-sum"}
SEEDED: dict[str, Any] = {"noise": "seeded"}


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """A table of which only the schema is needed, as for every plan."""
    path = tmp_path_factory.mktemp("plans") / "schema.toml"
    path.write_text(schema_text("ill", ["no", "yes"], age=[0, 100], weight=[0, 200]))
    path.with_name("table.csv").write_text("age,weight,ill\n")
    own = {"data": str(path.with_name("table.csv")), "schema": str(path)}
    return own | {"total_records": 600, "features": "none", "algorithm": "dpgd"}


def planned(table: dict[str, Any], **changes: Any) -> PlanReport:
    return taciturn.plan(**(table | changes))


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(agents=st.integers(3, 60), spare=st.integers(0, 60), reserve=st.integers(0, 50), rounds=st.integers(20, 300))
def test_noise_grows_with_who_may_collude_or_be_missing(
    table: dict[str, Any], agents: int, spare: int, reserve: int, rounds: int
) -> None:
    missing = spare % (agents - (agents + 1) // 2)  # what a protocol can open with one colluder
    found = planned(table, agents=agents, rounds=rounds, missing=missing, reserve=reserve, **SUM).trust_options
    server, *sums, alone = found
    assert (server.trust, alone.trust, {option.trust for option in sums}) == ("server", "agents", {"secure-sum"})
    (chosen,) = [option for option in found if option.chosen]
    assert chosen.spare == 1 + missing
    reserved = math.sqrt(1.0 + reserve / rounds)
    for option in sums:
        assert option.noise == pytest.approx(reserved * math.sqrt(agents / (agents - option.spare)))
    assert server.noise == 1.0 and alone.noise == pytest.approx(math.sqrt(agents))
    assert [option.noise for option in sums] == sorted({option.noise for option in sums})
    assert len(found) <= 11


def test_the_chosen_option_is_the_plan(table: dict[str, Any]) -> None:
    report = planned(table, agents=12, missing=2, reserve=6, **SUM)
    (chosen,) = [option for option in report.trust_options if option.chosen]
    assert chosen.noise_to_signal == report.proposal.noise_to_signal and chosen.verdict == report.proposal.verdict


@pytest.mark.parametrize(("agents", "spare"), [(3, 1), (4, 1), (5, 2), (10, 2), (40, 5)])
def test_the_hint_is_what_such_a_plan_says(table: dict[str, Any], agents: int, spare: int) -> None:
    report = planned(table, agents=agents)
    summed, alone = report.trust_options
    assert (summed.spare, alone.chosen, summed.chosen) == (spare, True, False)
    assert alone.noise_to_signal == report.proposal.noise_to_signal
    other = planned(table, agents=agents, missing=spare - 1, **SUM)
    assert summed.noise_to_signal == other.proposal.noise_to_signal


@pytest.mark.parametrize(
    "changes",
    [
        {"agents": 1},
        {"agents": 2},
        {"mechanism": "laplace"},
        {"set": "box"},
        {"trust": "server", **SEEDED},
        {"total_epsilon": "inf", **SEEDED},
        {"algorithm": "erm-outp", **SEEDED},
    ],
)
def test_where_no_secure_sum_is_possible_none_is_offered(table: dict[str, Any], changes: dict[str, Any]) -> None:
    assert planned(table, **({"agents": 5} | changes)).trust_options == []


def test_the_command_shows_it(table: dict[str, Any]) -> None:
    pairs = ((f"--{name.replace('_', '-')}", str(value)) for name, value in table.items() if name != "algorithm")
    words = [*(word for pair in pairs for word in pair), "--agents", "10", "--algorithm"]
    shown = command("plan", *words, "objp").stdout
    assert "--trust secure-sum --missing 1 --algorithm dpgd" in shown
    summed = command("plan", *words, "dpgd", "--trust", "secure-sum", "--reserve", "6").stdout
    assert "▸ a secure sum, c + d = 1" in summed and "the reserve of 6 uploads" in summed
    first, *_ = plan_facts(planned(table, agents=10, **SUM))["trust_options"]
    assert (first["trust"], first["noise"]) == ("server", 1.0)
