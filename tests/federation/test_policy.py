"""site.toml is read strictly, because it decides what leaves the site."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from taciturn.errors import InputError
from taciturn.federation.agreement import derive_agreement, find_objections
from taciturn.federation.drafts import write_site_draft
from taciturn.federation.kits import provision
from taciturn.federation.policy import LAYOUT, OPTIONAL, read_site
from taciturn.federation.terms import read_terms
from tests.federation.helpers import ACCEPT, merged, site_settings, write_table, write_terms, write_toml

HASH = "ab" * 32
SITE = site_settings("north", HASH)


def write(folder: Path, changes: dict[str, Any]) -> Path:
    return write_toml(folder / "site.toml", merged(SITE, changes))


def sentence(path: Path) -> str:
    with pytest.raises(InputError) as caught:
        read_site(path)
    said = str(caught.value)
    assert said and "\n" not in said
    return said


def test_a_site_is_read_and_its_paths_are_relative_to_its_file(tmp_path: Path) -> None:
    site = read_site(write(tmp_path, {"accept": {"mechanisms": None, "rounds_max": None}}))
    assert (site.name, site.protocol, site.schema_sha256) == ("north", 1, HASH)
    assert (site.table, site.schema) == (str(tmp_path / "table.csv"), str(tmp_path / "schema.toml"))
    assert (site.total_records, site.records_max, site.published) == (60, 20, "")
    assert (
        site.study == tmp_path / "federation.toml" and site.state == tmp_path / "state" and site.kit == tmp_path / "kit"
    )
    assert site.ledger == tmp_path / "patients.ledger"
    assert site.accepts.mechanisms == ("gaussian", "laplace") and site.accepts.rounds_max == 10_000
    assert site.accepts.open_studies_max == 1
    assert site.accepts.adjacency == ("add-remove",) and site.accepts.study_epsilon_max == 1.0


@pytest.mark.parametrize("section", sorted(set(LAYOUT) - set(OPTIONAL)))
def test_every_missing_key_is_named(tmp_path: Path, section: str) -> None:
    whole: dict[str, Any] = SITE[section] if section else {k: v for k, v in SITE.items() if not isinstance(v, dict)}
    needed = set(whole) - {"table", "schema", "mechanisms", "rounds_max"}
    assert needed
    for key in needed:
        said = sentence(write(tmp_path, {section: {key: None}} if section else {key: None}))
        assert said.endswith(f"needs [{section}] {key}" if section else f"needs {key}")


@pytest.mark.parametrize("section", sorted(LAYOUT))
def test_every_misspelt_key_is_named(tmp_path: Path, section: str) -> None:
    for key in LAYOUT[section]:
        wrong = {f"{key}x": 1}
        said = sentence(write(tmp_path, {section: wrong} if section else wrong))
        assert f"no key '{key}x'{f' in [{section}]' if section else ''} (did you mean '{key}'?)" in said


@pytest.mark.parametrize("section", ["data", "budget", "accept"])
def test_every_missing_or_misspelt_section_is_named(tmp_path: Path, section: str) -> None:
    assert f"has no section [{section}]" in sentence(write(tmp_path, {section: None}))
    said = sentence(write(tmp_path, {section: None, f"{section}s": SITE[section]}))
    assert f"no section '{section}s' (did you mean '{section}'?)" in said


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"protocol": 0}, "protocol is 0"),
        ({"protocol": True}, "protocol is True"),
        ({"site": 3}, "site is 3"),
        ({"kit": 3}, "kit is 3"),
        ({"data": {"table": 3}}, "[data] table is 3"),
        ({"data": {"schema_sha256": 3}}, "[data] schema_sha256 is 3"),
        ({"data": {"total_records": 0}}, "[data] total_records is 0"),
        ({"data": {"records_max": -2}}, "[data] records_max is -2"),
        ({"data": {"records_max": "some"}}, "[data] records_max is 'some'"),
        ({"budget": {"ledger": 3}}, "[budget] ledger is 3"),
        ({"budget": {"state": False}}, "[budget] state is False"),
        ({"accept": {"study_epsilon_max": 0.0}}, "[accept] study_epsilon_max is 0.0"),
        ({"accept": {"study_epsilon_max": -1.0}}, "[accept] study_epsilon_max is -1.0"),
        ({"accept": {"study_epsilon_max": float("inf")}}, "study_epsilon_max is inf"),
        ({"accept": {"study_epsilon_max": float("nan")}}, "study_epsilon_max is nan"),
        ({"accept": {"delta_max": 1.0}}, "[accept] delta_max is 1.0"),
        ({"accept": {"delta_max": "tiny"}}, "[accept] delta_max is 'tiny'"),
        ({"accept": {"mechanisms": []}}, "[accept] mechanisms is []"),
        ({"accept": {"mechanisms": "gaussian"}}, "mechanisms is 'gaussian'"),
        ({"accept": {"mechanisms": ["gauss"]}}, "no [accept] mechanisms 'gauss' (did you mean 'gaussian'?)"),
        ({"accept": {"adjacency": ["swap"]}}, "no [accept] adjacency 'swap'"),
        ({"accept": {"algorithms": ["objp", "obj"]}}, "no [accept] algorithms 'obj'"),
        ({"accept": {"algorithms": [3]}}, "no [accept] algorithms '3'"),
        ({"accept": {"rounds_max": 0}}, "[accept] rounds_max is 0"),
        ({"accept": {"rounds_max": 2.5}}, "[accept] rounds_max is 2.5"),
        ({"accept": {"open_studies_max": 0}}, "[accept] open_studies_max is 0"),
        ({"accept": {"open_studies_max": 1.5}}, "[accept] open_studies_max is 1.5"),
        ({"accept": 3}, "no key 'accept'"),
    ],
)  # fmt: skip
def test_an_error_is_one_sentence(tmp_path: Path, changes: dict[str, Any], said: str) -> None:
    found = sentence(write(tmp_path, changes))
    assert said in found and "site.toml" in found


@pytest.mark.parametrize("key", ["adjacency", "algorithms"])
def test_a_list_in_a_list_of_names_is_refused_too(tmp_path: Path, key: str) -> None:
    sentence(write(tmp_path, {"accept": {key: [ACCEPT[key]]}}))


def test_files_that_are_no_site(tmp_path: Path) -> None:
    assert "there is no file" in sentence(tmp_path / "site.toml")
    assert "'taciturn federation site init' writes one" in sentence(tmp_path / "site.toml")
    for content in (b"site = ", b"\xff"):
        (tmp_path / "site.toml").write_bytes(content)
        assert "is not a TOML file" in sentence(tmp_path / "site.toml")
    (tmp_path / "site.toml").write_bytes(b"")
    assert "needs protocol" in sentence(tmp_path / "site.toml")


def test_a_draft_is_the_site_of_its_kit(tmp_path: Path) -> None:
    place, table = write_terms(tmp_path), str(write_table(tmp_path / "table.csv", 0))
    terms, budget = read_terms(place), (1.0, 1e-6)
    kits = provision(terms, tmp_path / "kits")
    site = read_site(write_site_draft(tmp_path / "north", kits["north"], place, table, budget, ""))
    assert (site.name, site.schema_sha256, site.records_max) == ("north", terms.schema_sha256, 20)
    assert Path(site.table).resolve() == tmp_path / "table.csv" and site.schema == str(tmp_path / "north/schema.toml")
    assert site.kit.resolve() == kits["north"] and read_terms(site.study).digest == terms.digest
    assert find_objections(site, derive_agreement(terms)) == []
    with pytest.raises(InputError, match=r"site\.toml exists"):
        write_site_draft(tmp_path / "north", kits["north"], place, table, budget, "")
    with pytest.raises(InputError, match="is the kit of server"):
        write_site_draft(tmp_path / "east", kits["server"], place, table, budget, "")
    for given, said in (("", "give --data"), ("none.csv", "there is no table none.csv")):
        with pytest.raises(InputError, match=said):
            write_site_draft(tmp_path / "east", kits["north"], place, given, budget, "")
