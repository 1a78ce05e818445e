"""From a draft to complete terms: after enrolment, all parties see the same plan and hash."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from taciturn.errors import InputError
from taciturn.federation.agreement import derive_agreement, describe_terms
from taciturn.federation.drafts import draft_terms, insert_identity
from taciturn.federation.identity import Identity, PublicIdentity, group_digits, read_public
from taciturn.federation.terms import Terms, read_terms
from tests.cli.helpers import refused, taciturn, taciturn_json
from tests.federation.helpers import SCHEMA, SITES


@pytest.fixture
def draft(tmp_path: Path) -> Path:
    """Terms as `taciturn federation init` writes them."""
    (tmp_path / "schema.toml").write_text(SCHEMA)
    own = Identity.create(tmp_path / "coordinator.identity").public
    schema, sites = str(tmp_path / "schema.toml"), dict.fromkeys(SITES, 20)
    text = draft_terms("tiny", schema, "", sites, 60, 1.0, 1e-6, "localhost", 8002, str(own), tmp_path)
    path = tmp_path / "federation.toml"
    path.write_text(text)
    return path


@pytest.fixture
def identities(tmp_path: Path) -> dict[str, PublicIdentity]:
    return {site: Identity.create(tmp_path / f"{site}.key").public for site in SITES}


def enrolled(path: Path, identities: dict[str, PublicIdentity]) -> Terms:
    for site, one in identities.items():
        path.write_text(insert_identity(read_terms(path), site, one))
    return read_terms(path)


def test_the_hash_is_final_when_everybody_is_enrolled(draft: Path, identities: dict[str, PublicIdentity]) -> None:
    before = describe_terms(read_terms(draft))
    assert before["hash"] == "" and before["missing"] == list(SITES)
    complete = enrolled(draft, identities)
    complete.check_complete()
    found = describe_terms(complete)
    assert found["hash"] == complete.digest and found["missing"] == []
    shown = {name: one["fingerprint"] for name, one in found["parties"].items() if name in SITES}
    assert shown == {site: one.fingerprint for site, one in identities.items()}


def test_neither_order_nor_repetition_of_enrolments_counts(draft: Path, identities: dict[str, PublicIdentity]) -> None:
    other = draft.with_name("other.toml")
    shutil.copy(draft, other)
    once = enrolled(draft, identities)
    stranger = Identity.create(draft.with_name("stranger.key")).public
    backwards = dict(reversed(identities.items()))
    again = enrolled(other, {"south": stranger} | backwards | {"north": identities["north"]})
    assert again.digest == once.digest
    assert enrolled(other, {"west": stranger}).digest != once.digest
    assert draft.read_text().count("taciturn-id-1:") == 4 and "[running]" in draft.read_text()


def test_the_plan_in_words_is_the_one_that_is_computed(draft: Path) -> None:
    """It differs from that of another algorithm with the same budget."""
    terms = read_terms(draft)
    plan, found = derive_agreement(terms).plan, describe_terms(terms)
    assert found["algorithm"] == f"additive, {plan.rounds} rounds"
    assert f"multiplier {plan.multiplier:.4g}" in found["noise"]
    assert found["epsilon"].startswith(f"{plan.bound.epsilon:.4g} of 1 at delta 1e-06")


def test_an_identity_comes_as_a_line_or_in_a_file(draft: Path, identities: dict[str, PublicIdentity]) -> None:
    folder, line = draft.parent, str(identities["north"])
    (folder / "north.id").write_text(f"{line}\n")
    assert read_public(line) == read_public(str(folder / "north.id")) == identities["north"]
    with pytest.raises(InputError, match="private identity"):
        read_public(str(folder / "north.key"))
    for bad in ("", "x" * 5000, str(folder), str(folder / "missing.id"), line[:-1], str(draft)):
        with pytest.raises(InputError, match="public identity"):
            read_public(bad)


def test_the_commands(draft: Path) -> None:
    folder = draft.parent
    for site in SITES:
        done = taciturn("federation", "site", "identity", folder / site)
        (folder / f"{site}.id").write_text(done.stdout)
        said = taciturn("federation", "enrol", draft, site, folder / f"{site}.id").stdout
        assert read_public(done.stdout.strip()).fingerprint in done.stderr and said.split("\n")[0][-39:] in done.stderr
    found = taciturn_json("federation", "terms", draft)
    text = taciturn("federation", "terms", draft).stdout
    assert group_digits(found["hash"]) in text and group_digits(found["hash"]) in said
    assert "no site 'nowhere'" in refused("federation", "enrol", draft, "nowhere", folder / "north.id")
    assert "two parties have the same identity" in refused("federation", "enrol", draft, "south", folder / "north.id")
    assert describe_terms(read_terms(draft))["hash"] == found["hash"]  # what was refused changed nothing


def test_a_revoked_identity_cannot_be_enrolled(draft: Path, identities: dict[str, PublicIdentity]) -> None:
    complete = enrolled(draft, identities).digest
    revoked = f'\n[revoked]\nidentities = ["{identities["north"]}"]\n'
    draft.write_text(draft.read_text() + revoked)
    with pytest.raises(InputError, match="north is revoked"):
        read_terms(draft)
    fresh = Identity.create(draft.with_name("fresh.key")).public
    draft.write_text(draft.read_text().replace(f'north = "{identities["north"]}"', f'north = "{fresh}"'))
    assert read_terms(draft).digest != complete
