"""Fixtures for the tests of federations."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from taciturn.core.registry import Registry
from taciturn.data import Facts
from taciturn.federation import agreement, run_folder
from taciturn.federation.agent import SiteAgent
from taciturn.planning.plan import StudyPlan, plan_from_facts
from taciturn.privacy import composition
from taciturn.privacy.accountants import zcdp
from taciturn.settings import Settings
from tests.federation.helpers import Federation, make_federation

EPSILON, DISCOVER = cache(zcdp.zcdp_epsilon), cache(Registry._discover)
PLANS: dict[str, StudyPlan] = {}


def _cached_plan(settings: Settings, facts: Facts) -> StudyPlan:
    """Compute a plan once for all folders with the same terms."""
    plain = replace(settings, schema="")
    key = repr((plain, facts))
    if key not in PLANS:
        PLANS[key] = plan_from_facts(plain, facts)
    found = PLANS[key]
    return found._replace(settings=replace(found.settings, schema=settings.schema))


@pytest.fixture(autouse=True)
def quick(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Skip slow steps that other tests cover: reports, repeated pure computations."""
    if request.node.get_closest_marker("federation"):
        return
    monkeypatch.setattr(composition, "zcdp_epsilon", EPSILON)
    monkeypatch.setattr(zcdp, "zcdp_epsilon", EPSILON)
    monkeypatch.setattr(Registry, "_discover", DISCOVER)
    monkeypatch.setattr(agreement, "plan_from_facts", _cached_plan)
    monkeypatch.setattr(run_folder, "write_report", lambda folder: None)


@pytest.fixture
def tmp_path(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """On the disk for what starts confined programs."""
    if request.node.get_closest_marker("federation"):
        return Path(tempfile.mkdtemp(dir=request.getfixturevalue("on_disk")))
    return tmp_path


@pytest.fixture
def federation(tmp_path: Path) -> Federation:
    """A federation of three sites, each in its own folder."""
    return make_federation(tmp_path)


@pytest.fixture
def agents(federation: Federation) -> Iterator[dict[str, SiteAgent]]:
    """The agent of each site."""
    with federation.agents() as found:
        yield found
