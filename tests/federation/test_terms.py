"""federation.toml: errors are one sentence, and the digest covers exactly what the parties share."""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import Any

import pytest

from taciturn.data import read_schema
from taciturn.errors import InputError
from taciturn.federation.agreement import derive_agreement
from taciturn.federation.drafts import draft_terms, insert_identity
from taciturn.federation.identity import Identity
from taciturn.federation.terms import FOR_PUBLISHED, STUDY_KEYS, Terms, read_terms, schema_hash
from tests.federation.helpers import SCHEMA, SITES, TERMS, merged, write_terms, write_toml


def digest(folder: Path, **changes: Any) -> str:
    return read_terms(write_terms(folder, changes)).digest


def sentence(path: Path) -> str:
    with pytest.raises(InputError) as caught:
        _ = read_terms(path).digest
    said = str(caught.value)
    assert said and "\n" not in said
    return said


def test_terms_are_read(tmp_path: Path) -> None:
    terms = read_terms(write_terms(tmp_path, {"server": {"port": 9000}, "running": {"test": "test.csv"}}))
    assert (terms.name, terms.host, terms.port, terms.quorum, terms.answer_seconds) == (
        "tiny", "localhost", 9000, 2, 30.0,
    )  # fmt: skip
    assert terms.agents == SITES and terms.sites == dict.fromkeys(SITES, 20)
    assert terms.schema == tmp_path / "schema.toml" and terms.test == str(tmp_path / "test.csv")
    s = terms.settings
    assert (s.mode, s.noise, s.agents, s.total_records, s.rounds) == ("certified", "hardened", 3, 60, 4)
    facts = terms.facts()
    assert (facts.features, facts.outputs, facts.records_max, facts.published) == (3, 2, dict(terms.sites), False)


def test_more_than_half_of_the_sites_are_the_quorum_unless_said(tmp_path: Path) -> None:
    for count, quorum in ((1, 1), (2, 2), (3, 2), (4, 3), (5, 3)):
        sites = {f"s{n}": 5 for n in range(count)}
        path = write_toml(
            tmp_path / "f.toml", merged(TERMS, {"study": {"trust": "agents"}}) | {"sites": sites, "running": {}}
        )
        assert read_terms(path).quorum == quorum


def sums(folder: Path, count: int, **study: Any) -> Terms:
    """Return the terms of a study among this many sites that names no method and no trust model."""
    sites = dict.fromkeys(SITES) | {f"s{n:02}": 20 for n in range(count)}
    changes = {"sites": sites, "running": {"quorum": None}, "study": {"algorithm": None, **study}}
    return read_terms(write_terms(folder, changes))


def test_a_secure_sum_is_the_default_from_five_sites_on(tmp_path: Path) -> None:
    assert sums(tmp_path, 4).settings.trust == "agents"
    for count, missing in ((5, 1), (10, 1), (30, 3)):
        terms = sums(tmp_path, count, total_records=20 * count, features="bins")
        s = terms.settings
        assert (s.trust, s.colluders, s.missing, s.reserve) == ("secure-sum", 1, missing, 3)
        assert terms.quorum == count - missing and s.algorithm == ("additive",)
    terms = sums(tmp_path, 5, data="mnist14", schema=None, total_records=60_000, features="none")
    assert terms.settings.algorithm == ("dpgd",)


def test_the_quorum_of_a_secure_sum_is_what_its_noise_is_for(tmp_path: Path) -> None:
    sites = dict.fromkeys(SITES) | {f"s{n}": 20 for n in range(6)}
    changes = {"sites": sites, "study": {"algorithm": "dpgd", "missing": 2}}
    assert read_terms(write_terms(tmp_path, changes | {"running": {"quorum": 4}})).quorum == 4
    said = sentence(write_terms(tmp_path, changes | {"running": {"quorum": 3}}))
    assert "quorum is 3, but the noise of this secure sum is for sums of at least 4 of 6 sites" in said
    assert "remove it, or choose a quorum from 4 to 6 by missing in [study]" in said
    assert "set missing = 1 in [study]" in sentence(write_terms(tmp_path, changes | {"running": {"quorum": 5}}))


@pytest.mark.parametrize("name", ["objp", "objpm", "objt"])
def test_methods_with_local_state_have_no_secure_sum(tmp_path: Path, name: str) -> None:
    sites = dict.fromkeys(SITES) | {f"s{n}": 20 for n in range(5)}
    said = sentence(write_terms(tmp_path, {"sites": sites, "study": {"algorithm": name}}))
    assert f"not proven to be enough for {name}" in said and 'trust = "agents"' in said


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"protocol": None}, "needs protocol"),
        ({"protocol": 2}, "has protocol 2; this Taciturn supports 1"),
        ({"protocol": 0}, "protocol is 0"),
        ({"protocol": "one"}, "protocol is 'one'"),
        ({"name": None}, "needs name"),
        ({"name": 3}, "name is 3"),
        ({"name": "Tiny study"}, "name is 'Tiny study'"),
        ({"name": ""}, "name is ''"),
        ({"name": "../up"}, "name is '../up'"),
        ({"nam": "x"}, r"no key 'nam' (did you mean 'name'?): there are name, protocol"),
        ({"servers": {"host": "x"}}, "no section 'servers' (did you mean 'server'?)"),
        ({"server": None}, "has no section [server]"),
        ({"server": {"host": None}}, "needs [server] host"),
        ({"server": {"host": 3}}, "[server] host is 3"),
        ({"server": {"prot": 3}}, "no key 'prot' in [server] (did you mean 'port'?)"),
        ({"server": {"port": 0}}, "[server] port is 0"),
        ({"server": {"port": 65536}}, "[server] port is 65536"),
        ({"sites": None}, "needs a section [sites] with a line 'name = records_max' for each"),
        ({"sites": dict.fromkeys(SITES)}, "needs a section [sites]"),
        ({"sites": {"North": 3}}, "the site is 'North'"),
        ({"sites": {"n" * 42: 3}}, "at most 41"),
        ({"sites": {"-north": 3}}, "the site is '-north'"),
        ({"sites": {"north": 0}}, "the records_max of site north is 0"),
        ({"sites": {"north": "many"}}, "the records_max of site north is 'many'"),
        ({"sites": {"north": True}}, "the records_max of site north is True"),
        ({"sites": {"north": [20]}}, "the records_max of site north is a list"),
        ({"running": {"quorum": 0}}, "[running] quorum is 0"),
        ({"running": {"quorum": 4}}, "[running] quorum is 4"),
        ({"running": {"answer_seconds": 0}}, "[running] answer_seconds is 0"),
        ({"running": {"answer_seconds": float("inf")}}, "answer_seconds is inf"),
        ({"running": {"patience": 3}}, "no key 'patience' in [running]"),
        ({"running": {"test": 3}}, "[running] test is 3"),
        ({"study": None}, "has no section [study]"),
        ({"study": {"epsilon": 1.0}}, "no key 'epsilon' in [study] (did you mean 'total_epsilon'?)"),
        ({"study": {"mode": "paper"}}, "no key 'mode' in [study]"),
        ({"study": {"noise": "seeded"}}, "no key 'noise' in [study]"),
        ({"study": {"trust": "server"}}, "[study] trust is 'server'; a coordinator is not trusted"),
        ({"study": {"records_max": 5}}, "no key 'records_max' in [study]"),
        ({"study": {"total_records": None}}, "[study] needs total_records"),
        ({"study": {"total_records": 0}}, "[study] total_records is 0"),
        ({"study": {"total_records": 2.5}}, "[study] total_records is 2.5"),
        ({"study": {"schema": None}}, "[study] needs either schema (of the sites' tables) or data"),
        ({"study": {"data": "mnist14"}}, "[study] needs either schema (of the sites' tables) or data"),
        ({"study": {"schema": 3}}, "[study] schema is 3"),
        ({"study": {"partition": "shuffled"}}, "[study] partition is for a published data set"),
        ({"study": {"partition_key": 3}}, "[study] partition_key is for a published data set"),
        ({"study": {"schema": "none.toml"}}, "none.toml"),
        ({"study": {"schema": None, "data": "mnist15"}}, "'mnist15'"),
        ({"study": {"schema": None, "data": "records.csv"}}, "records.csv"),
        ({"study": {"schema": None, "data": 3}}, "[study] data is 3"),
        ({"study": {"schema_sha256": "00" * 32}}, "declares schema_sha256 000000000000…"),
        ({"study": {"schema_sha256": 3}}, "[study] schema_sha256 is 3"),
        ({"study": {"algorithm": "objq"}}, "no algorithm 'objq'"),
        ({"study": {"algorithm": ["objp", "objpm"]}}, "[study] algorithm must be one value"),
        ({"study": {"total_epsilon": [1.0, 2.0], "noise_multiplier": None}}, "[study] total_epsilon must be one value"),
        ({"study": {"total_epsilon": 0}}, "total-epsilon is 0"),
        ({"study": {"algorithm": "ceadmm"}}, "choose one of additive, dpgd, objp, objpm, objt, objw"),
        ({"study": {"algorithm": ["ceadmm"]}}, "choose one of additive, dpgd, objp, objpm, objt, objw"),
        ({"study": {"algorithm": "dpsgd"}}, "algorithm is dpsgd, which has no exact noise"),
        ({"study": {"delta": 1.0}}, "delta is 1.0"),
        ({"study": {"rounds": 0}}, "rounds is 0"),
        ({"study": {"precision": "float16"}}, "float16"),
        ({"study": {"mechanism": "cauchy"}}, "no mechanism 'cauchy'"),
        ({"study": {"adjacency": "edit"}}, "no adjacency 'edit'"),
    ],
)  # fmt: skip
def test_an_error_is_one_sentence(tmp_path: Path, changes: dict[str, Any], said: str) -> None:
    assert said in sentence(write_terms(tmp_path, changes))


@pytest.mark.parametrize("key", [*STUDY_KEYS, "schema", "schema_sha256", "data", "total_records"])
def test_every_misspelt_key_of_a_study_is_named(tmp_path: Path, key: str) -> None:
    assert f"no key '{key}x' in [study] (did you mean" in sentence(write_terms(tmp_path, {"study": {f"{key}x": 1}}))


@pytest.mark.parametrize("name", ["server", "coordinator", "authority"])
def test_a_site_has_no_name_that_a_kit_has_already(tmp_path: Path, name: str) -> None:
    assert f"{name} cannot be the name of a site" in sentence(write_terms(tmp_path, {"sites": {name: 20}}))


def test_files_that_are_no_terms(tmp_path: Path) -> None:
    assert "there is no file" in sentence(tmp_path / "federation.toml")
    assert "'taciturn federation init' writes one" in sentence(tmp_path / "federation.toml")
    assert "is a folder" in sentence(tmp_path)
    for content in (b"protocol = ", b"\xff\xfe", b"[sites]\nnorth = 1\nnorth = 2\n", b"<html>"):
        (tmp_path / "f.toml").write_bytes(content)
        assert "f.toml is not a TOML file" in sentence(tmp_path / "f.toml")
    for content in (b"", b"sites = 3\n", b"[[study]]\nrounds = 3\n"):
        (tmp_path / "f.toml").write_bytes(content)
        sentence(tmp_path / "f.toml")


SHARED: dict[str, Any] = {
    "loss": "hinge", "regulariser": "l1", "beta": 0.5, "set": "box", "set_size": 3.0, "algorithm": "objpm", "rounds": 5,
    "local_updates": 2, "rho": 0.5, "eta": 0.5, "eta_scale": 2.0, "total_epsilon": 2.0, "delta": 1e-7,
    "mechanism": "laplace", "adjacency": "replace-one", "clip": 0.5, "clip_l1": 0.5, "noise_multiplier": 21.0,
    "intercept": False, "features": "fourier", "precision": "float32", "total_records": 61,
}  # fmt: skip
OF_EVALUATIONS = ("test_share", "evaluations", "evaluation_epsilon")  # see test_evaluations.py
SHARED_SUM: dict[str, Any] = {"trust": "agents", "colluders": 2, "missing": 2, "reserve": 4}


def test_the_digest_changes_with_every_shared_setting(tmp_path: Path) -> None:
    assert {*SHARED, *SHARED_SUM, *FOR_PUBLISHED, *OF_EVALUATIONS} == {*STUDY_KEYS, "total_records"}
    found = {digest(tmp_path, study={key: value}) for key, value in SHARED.items()}
    found |= {
        digest(tmp_path, name="other"),
        digest(tmp_path, sites={"west": 21}),
        digest(tmp_path, sites={"west": None}),
    }
    found |= {digest(tmp_path, sites={"east": 20}), digest(tmp_path)}
    assert len(found) == len(SHARED) + 5


def test_the_digest_changes_with_every_setting_of_a_secure_sum(tmp_path: Path) -> None:
    found = {sums(tmp_path, 8, algorithm="dpgd", **{key: value}).digest for key, value in SHARED_SUM.items()}
    assert len(found | {sums(tmp_path, 8, algorithm="dpgd").digest}) == len(SHARED_SUM) + 1


def test_the_digest_changes_with_the_order_of_the_sites(tmp_path: Path) -> None:
    other = write_toml(tmp_path / "other.toml", TERMS | {"sites": dict.fromkeys(reversed(SITES), 20)})
    assert digest(tmp_path) != read_terms(other).digest


def test_the_digest_changes_with_the_schema_and_with_the_published_data(tmp_path: Path) -> None:
    first = digest(tmp_path)
    (tmp_path / "schema.toml").write_text(SCHEMA.replace("200", "201"))
    assert read_terms(tmp_path / "federation.toml").digest != first
    published = merged(TERMS, {"study": {"schema": None, "data": "mnist14"}})
    names = {read_terms(write_toml(tmp_path / "f.toml", merged(published, {"study": {"data": name}}))).digest
             for name in ("mnist14", "mnist", "femnist")}  # fmt: skip
    assert len(names) == 3
    parted = {read_terms(write_toml(tmp_path / "f.toml", merged(published, {"study": {key: value}}))).digest
              for key, value in (("partition", "shuffled"), ("partition_key", 1))}  # fmt: skip
    assert len(parted | names) == 5


def test_the_records_of_a_published_data_set_are_partitioned_as_the_terms_say(tmp_path: Path) -> None:
    parts = []
    for key in (1, 2):
        study = {"schema": None, "data": "mnist14", "total_records": 60_000, "partition": "shuffled"}
        path = write_toml(tmp_path / "f.toml", merged(TERMS, {"study": study | {"partition_key": key}}))
        (tmp_path / "schema.toml").unlink(missing_ok=True)
        dataset = read_terms(path).load_published()
        assert dataset is not None and [len(shard.x) for shard in dataset.train] == [20_000] * 3
        parts.append(dataset.train[0].y.argmax(axis=1))
    assert (parts[0] != parts[1]).any()


def test_the_digest_does_not_change_with_what_is_the_coordinators_own(tmp_path: Path) -> None:
    same = {
        digest(tmp_path),
        digest(tmp_path, running={"quorum": 3, "answer_seconds": 5}),
        digest(tmp_path, running={"test": "test.csv"}),
        digest(tmp_path, running=None),
        digest(tmp_path, server={"port": 9000, "host": "elsewhere"}),
        digest(tmp_path, study={"delta": 1e-6, "local_updates": "auto"}),  # a default, spelled out
    }
    assert len(same) == 1


def test_the_digest_does_not_change_with_remarks_and_spaces(tmp_path: Path) -> None:
    path = write_terms(tmp_path)
    first = read_terms(path).digest
    text = path.read_text()
    path.write_text("# a remark\n\n" + text.replace(" = ", "   =  ").replace("\n", "  # why\n"))
    assert read_terms(path).digest == first
    head, study = text.split("[study]\n")
    lines, rest = study.split("\n\n")
    path.write_text(
        head + "[study]\n" + "\n".join(reversed(lines.splitlines())) + "\n\n" + rest
    )  # another order of keys
    assert read_terms(path).digest == first


def test_the_hash_of_a_schema_is_of_its_meaning(tmp_path: Path) -> None:
    def hashed(text: str) -> str:
        (tmp_path / "s.toml").write_text(text)
        return schema_hash(read_schema(tmp_path / "s.toml"))

    first = hashed(SCHEMA)
    assert hashed("# remarks\n" + SCHEMA.replace("\n", "  # why\n").replace(" = ", "=")) == first
    assert hashed(SCHEMA.replace("[0, 100]", "[0.0, 100.0]")) == first
    assert hashed(SCHEMA + '[agent]\ncolumn = "clinic"\n') == first  # a site brings its own records only
    assert hashed(SCHEMA.replace('"no", "yes"', '"yes", "no"')) == first  # classes have an order of their own
    changed = [("100", "101"), ("age", "years"), ("ill", "sick"), ('"no", "yes"', '"no", "yes", "unknown"')]
    assert len({first, *(hashed(SCHEMA.replace(*change)) for change in changed)}) == len(changed) + 1
    assert hashed(SCHEMA + '[unit]\ncolumn = "patient"\nmax_records = 3\n') != first


def test_a_draft_can_be_read(tmp_path: Path) -> None:
    (tmp_path / "schema.toml").write_text(SCHEMA)
    schema = str(tmp_path / "schema.toml")
    own, place = str(Identity.create(tmp_path / "own").public), tmp_path / "federation.toml"
    place.write_text(
        draft_terms("tiny", schema, "", dict.fromkeys(SITES, 20), 60, 1.0, 1e-6, "localhost", 8002, own, tmp_path)
    )
    terms = read_terms(place)
    with pytest.raises(InputError, match="has no identity of north, south, west"):
        terms.check_complete()
    for site in (*SITES, "south"):  # the last of them anew
        before = read_terms(place).digest
        place.write_text(
            insert_identity(read_terms(place), site, Identity.create(tmp_path / secrets.token_hex()).public)
        )
        assert read_terms(place).digest != before
    terms = read_terms(place)
    terms.check_complete()
    assert tuple(sorted(terms.identities)) == SITES and str(terms.coordinator) == own
    assert terms.agents == SITES and terms.quorum == 2 and terms.settings.total_epsilon == (1.0,)
    text = draft_terms("digits", "", "mnist14", dict.fromkeys(SITES, 20000), 60000, 1.0, 1e-6, "localhost", 8002, own)
    (tmp_path / "federation.toml").write_text(text)
    assert read_terms(tmp_path / "federation.toml").data == "mnist14"


def test_rounds_that_a_given_noise_has_no_room_for_are_refused_not_cut(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"rounds is 300, but with noise-multiplier 20 only \d+ rounds fit"):
        derive_agreement(read_terms(write_terms(tmp_path, {"study": {"rounds": 300}})))
    planned = derive_agreement(read_terms(write_terms(tmp_path, {"study": {"rounds": "auto"}})))
    assert planned.part.rounds == planned.study_plan.settings.rounds and planned.part.rounds < 300
