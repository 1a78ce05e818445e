"""Drafts of the terms say the trust model that would be the default, and `terms` says what it means."""

from __future__ import annotations

import math
import re
from pathlib import Path

import pytest

from taciturn.errors import InputError
from taciturn.federation.agreement import derive_agreement, describe_terms, find_objections
from taciturn.federation.drafts import draft_terms, write_site_draft
from taciturn.federation.identity import Identity
from taciturn.federation.kits import provision
from taciturn.federation.policy import read_site
from taciturn.federation.terms import Terms, default_trust, read_terms
from tests.cli.helpers import refused, taciturn
from tests.federation.helpers import SCHEMA, write_table

SUM_LINES = re.compile(r"^(trust|colluders|missing|reserve) = .*\n", re.MULTILINE)


def draft(folder: Path, sites: int, trust: str = "", colluders: int = 1, missing: int | None = None) -> Terms:
    """Return the terms that `init` drafts for this many sites."""
    (folder / "schema.toml").write_text(SCHEMA)
    own = folder / "coordinator.identity"
    public = str((Identity.open(own) if own.exists() else Identity.create(own)).public)
    named = {f"s{n}": 20 for n in range(1, sites + 1)}
    given = ("tiny", str(folder / "schema.toml"), "", named, 20 * sites, 1.0, 1e-6, "localhost", 8002, public, folder)
    (folder / "federation.toml").write_text(draft_terms(*given, trust, colluders, missing))
    return read_terms(folder / "federation.toml")


@pytest.mark.parametrize("sites", [1, 2, 3, 4, 5, 9, 10, 40])
def test_what_a_draft_says_is_the_default(tmp_path: Path, sites: int) -> None:
    terms = draft(tmp_path, sites)
    text = terms.path.read_text()
    plain, lines = SUM_LINES.subn("", text)
    assert lines == (3 if default_trust(sites) == "secure-sum" else 0)
    terms.path.write_text(plain)
    assert read_terms(terms.path).digest == terms.digest and read_terms(terms.path).quorum == terms.quorum
    assert text.count("secure-sum") == (0 if sites < 3 else 1)
    if sites >= 3:  # the key in the draft can be uncommented as it is
        keyed = re.sub(r"^# trust = ", "trust = ", text, flags=re.MULTILINE)
        terms.path.write_text(keyed.replace("\nquorum = ", "\n# "))
        assert read_terms(terms.path).settings.trust == "secure-sum"


@pytest.mark.parametrize(("sites", "colluders", "missing"), [(3, 1, 0), (4, 1, 1), (5, 2, 1), (10, 3, 2), (12, 1, 0)])
def test_a_secure_sum_can_be_asked_for(tmp_path: Path, sites: int, colluders: int, missing: int) -> None:
    terms = draft(tmp_path, sites, "secure-sum", colluders, missing)
    s, parameters = terms.settings, derive_agreement(terms).sum_parameters
    assert (s.trust, s.colluders, s.missing) == ("secure-sum", colluders, missing)
    assert parameters is not None and parameters.quorum == terms.quorum == sites - missing


def test_noise_at_every_site_can_be_asked_for(tmp_path: Path) -> None:
    terms = draft(tmp_path, 7, "agents")
    assert terms.settings.trust == "agents" and terms.quorum == 4 and derive_agreement(terms).sum_parameters is None


@pytest.mark.parametrize(
    ("sites", "trust", "colluders", "missing", "said"),
    [
        (2, "secure-sum", 1, None, "there are 2 agents: a secure sum with hardened noise needs at least 3"),
        (4, "", 1, 0, "missing is 0, but the trust model of 4 sites is agents"),
        (4, "", 2, None, "colluders is 2, but the trust model of 4 sites is agents"),
        (5, "agents", 1, 1, "add --trust secure-sum"),
        (5, "", 1, 2, "of 5 agents with 1 colluder at most 1 may be missing"),
        (5, "", 4, 0, "colluders is 4, but a secure sum of 5 agents"),
        (5, "", 0, None, "one agent may always collude"),
    ],
)
def test_what_no_protocol_can_open_is_refused(
    tmp_path: Path, sites: int, trust: str, colluders: int, missing: int | None, said: str
) -> None:
    with pytest.raises(InputError, match=said):
        draft(tmp_path, sites, trust, colluders, missing)


def test_the_command_writes_nothing_that_it_refuses(tmp_path: Path) -> None:
    (tmp_path / "schema.toml").write_text(SCHEMA)
    few, many = "--sites a=9,b=9,c=9,d=9", "--sites a=9,b=9,c=9,d=9,e=9"
    for words, said in (
        (f"{few} --colluders 2", "colluders is 2, but the trust model of 4 sites is agents"),
        (f"{many} --missing -1", "missing is -1"),
        (f"{many} --trust server", "no trust 'server': there are agents, secure-sum"),
    ):
        given = ("federation", "init", "--schema", "schema.toml", "--total-records", "40", *words.split())
        assert said in refused(*given, cwd=tmp_path)
        assert not (tmp_path / "federation.toml").exists()


@pytest.mark.parametrize(("sites", "colluders", "missing"), [(5, 1, 1), (10, 2, 2)])
def test_the_terms_in_words_are_those_of_the_plan(tmp_path: Path, sites: int, colluders: int, missing: int) -> None:
    terms = draft(tmp_path, sites, "secure-sum", colluders, missing)
    found, plan = describe_terms(terms), derive_agreement(terms).plan
    honest = sites - colluders - missing
    assert f"at least {sites - missing} of the {sites} sites" in found["trust"]
    assert found["epsilon"].endswith(" at delta 1e-06 for one record")
    text = terms.path.read_text()
    terms.path.write_text(text.replace("delta = 1e-06", "delta = 0.002"))
    assert f"one over {20 * sites} records: it should be" in describe_terms(read_terms(terms.path))["epsilon"]
    assert f"at most {'one site tells' if colluders == 1 else '2 sites tell'}" in found["trust"]
    assert f"any {honest} are enough" in found["noise"] and f"multiplier {plan.multiplier:.4g}" in found["noise"]
    assert f"{math.sqrt(sites / honest):.3g} times" in found["noise"]
    assert f"{sites - missing} of {sites} sites must be in a sum" in found["quorum"]
    assert found["reserve"].startswith(f"{plan.reserve} uploads of a site beyond {plan.rounds} rounds")


def test_the_price_of_the_reserve_is_that_of_the_noise(tmp_path: Path) -> None:
    terms = draft(tmp_path, 5)
    without = terms.path.with_name("without.toml")
    without.write_text(terms.path.read_text().replace("# reserve = 6", "reserve = 0"))
    more = derive_agreement(terms).plan.multiplier / derive_agreement(read_terms(without)).plan.multiplier
    (price,) = re.findall(r"([\d.]+) % more noise", describe_terms(terms)["reserve"])
    assert float(price) == pytest.approx(100.0 * (more - 1.0), abs=0.06)
    assert describe_terms(draft(tmp_path, 4))["reserve"] == ""
    assert "reserve" not in taciturn("federation", "terms", terms.path).stdout


def test_the_policy_that_a_site_drafts_accepts_the_terms_but_for_its_peers(tmp_path: Path) -> None:
    terms = draft(tmp_path, 5)
    kits, table = provision(terms, tmp_path / "kits"), str(write_table(tmp_path / "s1.csv", 1))
    site = read_site(write_site_draft(tmp_path / "s1", kits["s1"], terms.path, table, (1.0, 1e-6), ""))
    assert site.accepts.trust == ("agents", "secure-sum") and site.accepts.colluders_min == 1
    (reason,) = find_objections(site, derive_agreement(terms))
    assert "nobody at this site has verified the identities of s2, s3, s4, s5" in reason
    few = draft(tmp_path, 3)
    kits = provision(few, tmp_path / "other")
    site = read_site(write_site_draft(tmp_path / "few", kits["s1"], few.path, table, (1.0, 1e-6), ""))
    assert site.accepts.trust == ("agents",)


def test_sites_can_refuse_a_trust_model(tmp_path: Path) -> None:
    terms = draft(tmp_path, 5)
    kits, table = provision(terms, tmp_path / "kits"), str(write_table(tmp_path / "s1.csv", 1))
    path = write_site_draft(tmp_path / "s1", kits["s1"], terms.path, table, (1.0, 1e-6), "")
    text = path.read_text()
    for old, new, said in (
        ('trust = ["agents", "secure-sum"]', 'trust = ["agents"]', "trust is secure-sum, but this site accepts agents"),
        ("colluders_min = 1", "colluders_min = 2", "colluders is 1, but this site requires noise for at least 2"),
        ("quorum_min = 1", "quorum_min = 5", "sums over 4 sites can be opened, but this site requires at least 5"),
    ):
        path.write_text(text.replace(old, new))
        assert said in "; ".join(find_objections(read_site(path), derive_agreement(terms)))
    path.write_text(text.replace("quorum_min = 1", "quorum_min = 4"))
    assert "sums over" not in "; ".join(find_objections(read_site(path), derive_agreement(terms)))
    path.write_text(text.replace('trust = ["agents", "secure-sum"]', 'trust = ["server"]'))
    with pytest.raises(InputError, match="trust"):
        read_site(path)
