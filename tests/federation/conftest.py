"""Settings for the tests of federations."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from taciturn.core.registry import Registry
from taciturn.data import Facts
from taciturn.federation import agreement
from taciturn.federation import run_folder as books
from taciturn.federation.agent import SiteAgent
from taciturn.planning.plan import StudyPlan, plan_from_facts
from taciturn.privacy import composition
from taciturn.privacy.accountants import zcdp
from taciturn.settings import Settings
from tests.federation.helpers import Federation, make_federation

EPSILON, DISCOVER = cache(zcdp.zcdp_epsilon), cache(Registry._discover)
OUTLINES: dict[str, StudyPlan] = {}


def _outline(settings: Settings, facts: Facts) -> StudyPlan:
    """The same for all the folders that a federation is made in."""
    plain = replace(settings, schema="")
    key = repr((plain, facts))
    if key not in OUTLINES:
        OUTLINES[key] = plan_from_facts(plain, facts)
    found = OUTLINES[key]
    return found._replace(settings=replace(found.settings, schema=settings.schema))


@pytest.fixture(autouse=True)
def quick(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without what takes time and is tested elsewhere: reports, waiting for disks, pure functions over and over."""
    if request.node.get_closest_marker("federation"):
        return
    monkeypatch.setattr(composition, "zcdp_epsilon", EPSILON)
    monkeypatch.setattr(zcdp, "zcdp_epsilon", EPSILON)
    monkeypatch.setattr(Registry, "_discover", DISCOVER)
    monkeypatch.setattr(agreement, "plan_from_facts", _outline)
    monkeypatch.setattr(books, "write_report", lambda folder: None)
    monkeypatch.setattr(os, "fsync", lambda handle: None)  # no test takes the power away


@pytest.fixture
def federation(tmp_path: Path) -> Federation:
    """Three sites, as far apart as folders are."""
    return make_federation(tmp_path)


@pytest.fixture
def agents(federation: Federation) -> Iterator[dict[str, SiteAgent]]:
    """The agent of each of them."""
    with federation.agents() as found:
        yield found
