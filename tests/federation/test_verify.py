"""People compare the identities of other sites, and a site that nobody has verified counts as a colluder."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest

from taciturn.errors import InputError
from taciturn.federation.agreement import derive_agreement, find_objections, verified_peers
from taciturn.federation.drafts import insert_identity
from taciturn.federation.identity import Identity
from taciturn.federation.policy import read_peers
from taciturn.federation.site_operations import list_peers, read_peers_report, site_status, verify_peer
from taciturn.federation.terms import read_terms
from tests.cli.helpers import refused, taciturn, taciturn_json
from tests.federation.helpers import make_federation
from tests.federation.sum_helpers import SumFederation, make_sums

OWN, PEERS = "s1", ("s2", "s3", "s4", "s5")


@pytest.fixture
def strangers(tmp_path: Path) -> SumFederation:
    """Five sites of which s1 has verified nobody."""
    federation = make_sums(tmp_path)
    federation.site(OWN).peers.unlink()
    return federation


def fingerprint(federation: SumFederation, site: str) -> str:
    """Return what people of a site read out on the telephone."""
    return Identity.open(federation.site(site).identity).public.fingerprint


def verified(federation: SumFederation) -> set[str]:
    return set(verified_peers(federation.site(OWN), federation.terms))


def changed(text: str, at: Iterable[int]) -> str:
    digits = list(text)
    for place in at:
        digits[place] = "0" if digits[place] != "0" else "1"
    return "".join(digits)


def test_what_a_peer_reads_out_verifies_it_and_no_other(strangers: SumFederation) -> None:
    file, heard = strangers.file(OWN), fingerprint(strangers, "s3")
    shown = taciturn("federation", "site", "verify", file).stdout
    assert heard in shown and "s1 refuses the study tiny" in shown
    before = taciturn_json("federation", "site", "verify", file)
    assert not before["enough"] and [peer["verified"] for peer in before["peers"].values()] == [False] * 4
    assert verified(strangers) == set()  # to list them records nothing
    found = taciturn_json("federation", "site", "verify", file, "s3", heard.replace(" ", "").upper())
    assert [name for name, peer in found["peers"].items() if peer["verified"]] == ["s3"]
    assert verified(strangers) == {"s3"} and read_peers(strangers.site(OWN)).keys() == {"s3"}


@pytest.mark.parametrize("at", [[0], [17], [38], [0, 38]])
def test_another_fingerprint_is_refused_and_records_nothing(strangers: SumFederation, at: list[int]) -> None:
    heard = fingerprint(strangers, "s2")
    with pytest.raises(InputError, match=f"{heard}, and not .* s2 is not verified"):
        verify_peer(strangers.file(OWN), "s2", changed(heard, at))
    with pytest.raises(InputError, match="s2 is not verified"):  # nor does that of another site
        verify_peer(strangers.file(OWN), "s2", fingerprint(strangers, "s3"))
    assert not strangers.site(OWN).peers.exists()


@pytest.mark.parametrize(
    "short", ["", "1234", "12345678", "g" * 32, "0" * 31, "0" * 33, "0" * 64, "…", "0x" + "0" * 30]
)
def test_a_part_of_a_fingerprint_is_not_enough(strangers: SumFederation, short: str) -> None:
    with pytest.raises(InputError, match="32 hexadecimal digits"):
        verify_peer(strangers.file(OWN), "s2", short)
    with pytest.raises(InputError, match="32 hexadecimal digits"):
        verify_peer(strangers.file(OWN), "s2", fingerprint(strangers, "s2")[:30])
    assert verified(strangers) == set()


def test_only_other_sites_of_the_study_can_be_verified(strangers: SumFederation) -> None:
    file, heard = strangers.file(OWN), fingerprint(strangers, "s2")
    for name in (OWN, "s6", "coordinator", "../s2"):
        assert "no other site" in refused("federation", "site", "verify", file, name, heard)
    assert "32 digits" in refused("federation", "site", "verify", file, "s2")
    assert verified(strangers) == set()


def test_a_peer_with_a_new_identity_has_to_be_verified_again(strangers: SumFederation) -> None:
    file, site = strangers.file(OWN), strangers.site(OWN)
    verify_peer(file, "s2", fingerprint(strangers, "s2"))
    other = Identity.create(strangers.root / "other.key").public
    site.study.write_text(insert_identity(read_terms(site.study), "s2", other))
    assert verified_peers(site, read_terms(site.study)) == frozenset()
    with pytest.raises(InputError, match="s2 is not verified"):
        verify_peer(file, "s2", fingerprint(strangers, "s2"))
    assert verify_peer(file, "s2", other.fingerprint)["peers"]["s2"]["verified"]


def test_the_study_is_refused_until_no_more_are_unverified_than_may_collude(strangers: SumFederation) -> None:
    site, agreement = strangers.site(OWN), derive_agreement(strangers.terms)
    for count, peer in enumerate(PEERS, 1):
        (reason, *_) = [*find_objections(site, agreement), ""]
        found = list_peers(site, strangers.terms)
        assert found["enough"] == (reason == "") == (len(PEERS) - count + 1 <= 1)
        assert reason == "" or (
            "nobody at this site has verified" in reason and ", ".join(PEERS[count - 1 :]) in reason
        )
        verify_peer(strangers.file(OWN), peer, fingerprint(strangers, peer))
    assert find_objections(site, agreement) == []
    assert "all 4 verified" in taciturn("federation", "site", "verify", strangers.file(OWN)).stdout


def test_where_every_site_adds_all_of_the_noise_nobody_has_to_be_verified(tmp_path: Path) -> None:
    federation = make_federation(tmp_path)
    found = taciturn_json("federation", "site", "verify", federation.file("north"))
    assert not found["needed"] and found["enough"] and found["peers"].keys() == {"south", "west"}
    assert "has no identity of south yet" in refused(
        "federation", "site", "verify", federation.file("north"), "south", "0" * 32
    )


def test_status_says_who_is_verified_and_does_not_need_the_terms(strangers: SumFederation) -> None:
    found = site_status(strangers.file(OWN))["peers"]
    assert found is not None and not found["enough"]
    site = strangers.site(OWN)
    site.peers.write_text("no TOML")
    assert read_peers_report(site) is None and site_status(strangers.file(OWN))["peers"] is None
    site.study.unlink()
    assert site_status(strangers.file(OWN))["peers"] is None
