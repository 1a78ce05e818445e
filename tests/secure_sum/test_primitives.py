"""Vectors of the RFCs through our own functions, so that a swapped argument shows; laws of masks and packing."""

from __future__ import annotations

import ast
import hashlib
import hmac
from dataclasses import astuple, replace
from pathlib import Path

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chi2

from taciturn.errors import InputError
from taciturn.privacy.signatures import SigningKey, private_pem
from taciturn.secure_sum import masking
from taciturn.secure_sum.masking import (
    SMALL_ORDER,
    centred,
    chacha20,
    fingerprint,
    hkdf,
    is_sound_public,
    keystream,
    masked,
    pack,
    pair_key,
    pair_public,
    pair_secret,
    self_mask,
    unpack,
)
from taciturn.secure_sum.parameters import WIDTHS, SumParameters, choose_format, default_reserve
from taciturn.secure_sum.shamir import PRIME
from taciturn.secure_sum.slot_messages import MaskedUpload
from taciturn.secure_sum.sum_context import SumStudy, framed, hpke_suite
from tests.secure_sum.helpers import group, identity, study_of


def hexed(text: str) -> bytes:
    return bytes.fromhex("".join(text.split()))


def test_chacha20_rfc_8439() -> None:
    key, nonce = bytes(range(32)), hexed("000000000000004a00000000")
    text = (
        b"Ladies and Gentlemen of the class of '99: If I could offer you only one tip for the future, sunscreen "
        b"would be it."
    )
    found = chacha20(key, text, (1).to_bytes(4, "little") + nonce)  # section 2.4.2
    assert found[:32] == hexed("6e2e359a2568f98041ba0728dd0d6981 e97e7aec1d4360c20a27afccfd9fae0b")
    assert found[-16:] == hexed("0bbf74a35be6b40b8eedf2785e42874d")
    zeros = keystream(bytes(32), 8)  # appendix A.1, test vector 1
    assert zeros.astype("<u8").tobytes()[:32] == hexed(
        "76b8e0ada0f13d90405d6ae55386bd28bdd219b8a08ded1aa836efcc8b770dc7"
    )


def test_hkdf_rfc_5869() -> None:
    first = hkdf(bytes([0x0B] * 22), bytes(range(0xF0, 0xFA)), bytes(range(13)), 42)  # appendix A.1
    assert first == hexed("3cb25f25faacd57a90434f64d0362f2a 2d2d0a90cf1a5a4c5db02d56ecc4c5bf 34007208d5b887185865")
    third = hkdf(bytes([0x0B] * 22), b"", length=42)  # appendix A.3: neither salt nor info
    assert third == hexed("8da4e775a563c18f715f802a063c5a31 b8a11f5c5ee1879ec3454e5f3c738d2d 9d201395faa4b61a96c8")


def test_x25519_rfc_7748() -> None:
    scalar = X25519PrivateKey.from_private_bytes(
        hexed("a546e36bf0527c9d3b16154b82465edd62144c0ac1fc5a18506a2244ba449ac4")
    )
    u = hexed("e6db6867583030db3594c1a424b15f7c726624ec26b3353b10a903a6d0ab1c4c")  # section 5.2
    assert pair_secret(scalar, u) == hexed("c3da55379de9c6908e94ea4df28d084f32eccf03491c71f754b4075577a28552")


def test_ed25519_rfc_8032() -> None:
    private = Ed25519PrivateKey.from_private_bytes(
        hexed("c5aa8df43f9f837bedb7442f31dcb7b166d38535076f094b85ce3a2e0b4458f7")
    )
    key = SigningKey(private_pem(private), Path("key"))  # section 7.1, test 3
    signature = hexed(
        "6291d657deec24024827e69c3abe01a30ce548a284743a445e3680d7db5ac3ac"
        "18ff9b538d16f290ae67f760984dc6594a7c15e9716ed28dc027beceea1ec40a"
    )
    assert key.sign(b"\xaf\x82") == signature and key.public.verify(b"\xaf\x82", signature)
    assert not key.public.verify(b"\xaf\x83", signature)


def test_hpke_rfc_9180() -> None:
    # The keys of appendix A.2.1. The library encrypts with a fresh key and without associated data, so the ciphertexts
    # of the appendix cannot be compared; the RFC's steps, written out below, open what our suite encrypts.
    private = X25519PrivateKey.from_private_bytes(
        hexed("8057991eef8f1f1af18f4a9491d16a1ce333f695d4db8e38da75975c4478e0fb")
    )
    assert private.public_key().public_bytes_raw() == hexed(
        "4310ee97d88cc1f088a5576c77ab0cf5c3ac797f3d95139c6c84b5429c59662a"
    )
    sealed = hpke_suite().encrypt(b"Beauty is truth", private.public_key(), b"Ode on a Grecian Urn")
    assert (
        len(sealed) == 48 + 15 and hpke_suite().decrypt(sealed, private, b"Ode on a Grecian Urn") == b"Beauty is truth"
    )
    assert _hpke_open(sealed, private, b"Ode on a Grecian Urn") == b"Beauty is truth"


def _hpke_open(sealed: bytes, private: X25519PrivateKey, info: bytes) -> bytes:
    """Open a message of DHKEM(X25519, HKDF-SHA256), HKDF-SHA256, ChaCha20-Poly1305, as RFC 9180 describes it."""

    def extract(salt: bytes, suite: bytes, label: bytes, material: bytes) -> bytes:
        return hmac.digest(salt or bytes(32), b"HPKE-v1" + suite + label + material, "sha256")

    def expand(key: bytes, suite: bytes, label: bytes, about: bytes, length: int) -> bytes:
        return hmac.digest(key, length.to_bytes(2, "big") + b"HPKE-v1" + suite + label + about + b"\1", "sha256")[
            :length
        ]

    kem, suite = b"KEM\x00\x20", b"HPKE\x00\x20\x00\x01\x00\x03"
    encapsulated = sealed[:32]
    shared = private.exchange(X25519PublicKey.from_public_bytes(encapsulated))
    both = encapsulated + private.public_key().public_bytes_raw()
    secret = expand(extract(b"", kem, b"eae_prk", shared), kem, b"shared_secret", both, 32)
    schedule = b"\0" + extract(b"", suite, b"psk_id_hash", b"") + extract(b"", suite, b"info_hash", info)
    master = extract(secret, suite, b"secret", b"")
    key = expand(master, suite, b"key", schedule, 32)
    return ChaCha20Poly1305(key).decrypt(expand(master, suite, b"base_nonce", schedule, 12), sealed[32:], b"")


def test_public_keys_of_small_order_or_in_another_form_are_refused() -> None:
    own = X25519PrivateKey.generate()
    for u in (*SMALL_ORDER, PRIME, PRIME + 1, PRIME + 9, 2**255 + 9):
        public = u.to_bytes(32, "little")
        assert not is_sound_public(public)
        with pytest.raises(InputError, match="of small order"):
            pair_secret(own, public)
    for u in SMALL_ORDER:  # the library agrees: the shared secret would be zero
        with pytest.raises(ValueError, match="Error computing shared key"):
            own.exchange(X25519PublicKey.from_public_bytes(u.to_bytes(32, "little")))
    assert not is_sound_public(bytes(31)) and is_sound_public(own.public_key().public_bytes_raw())


@given(st.sampled_from(WIDTHS), st.lists(st.integers(0, 2**64 - 1), max_size=20), st.integers(-(2**39), 2**39 - 1))
def test_packing_is_modulo_two_to_the_width(width: int, values: list[int], small: int) -> None:
    words = np.array(values, np.uint64)
    assert unpack(pack(words, width), width).tolist() == [value % 2**width for value in values]
    assert len(pack(words, width)) == len(values) * width // 8
    assert centred(np.array([small % 2**64], np.uint64), width).tolist() == [small]


@given(st.integers(2, 6), st.integers(0, PRIME - 1))
def test_pair_masks_cancel(sites: int, start: int) -> None:
    secrets = {site: (start * site + 1) % PRIME for site in range(1, sites + 1)}
    publics = {site: pair_public(secret) for site, secret in secrets.items()}
    total = np.zeros(5, np.uint64)
    for site, secret in secrets.items():
        others = {other: public for other, public in publics.items() if other != site}
        zeros = np.zeros(5, np.int64)
        total += masked(zeros, (secret, 7), site, others, b"context") - self_mask(7, site, b"context", 5)
    assert not total.any()


def test_known_masks() -> None:
    # Three sites, four numbers, 40 bits: bytes that were written down once, so that a change of any key shows
    secrets = {site: (1000 + site, 2000 + site) for site in (1, 2, 3)}
    publics = {site: pair_public(pair) for site, (pair, _) in secrets.items()}
    found = hashlib.sha256()
    for site, both in secrets.items():
        others = {other: public for other, public in publics.items() if other != site}
        found.update(pack(masked(np.arange(4) - site, both, site, others, bytes(32)), 40))
    assert found.hexdigest() == KNOWN
    assert pair_key(5).public_key().public_bytes_raw() != pair_public(6) and fingerprint(5) != fingerprint(6)


@given(st.lists(st.binary(max_size=5), max_size=4), st.lists(st.binary(max_size=5), max_size=4))
def test_different_parts_never_give_the_same_bytes(one: list[bytes], other: list[bytes]) -> None:
    assert (framed(*one) == framed(*other)) == (one == other)


def test_every_field_of_a_context_changes_it_and_every_mask() -> None:
    study = study_of(5, 1, 4)
    base = (1, b"d" * 32, 0, 1, (1, 2, 3, 4), b"w" * 32)
    changed = [(2, b"d" * 32, 0, 1, (1, 2, 3, 4), b"w" * 32), (1, b"e" * 32, 0, 1, (1, 2, 3, 4), b"w" * 32)]
    changed += [(1, b"d" * 32, 1, 1, (1, 2, 3, 4), b"w" * 32), (1, b"d" * 32, 0, 2, (1, 2, 3, 4), b"w" * 32)]
    changed += [(1, b"d" * 32, 0, 1, (1, 2, 3, 5), b"w" * 32), (1, b"d" * 32, 0, 1, (1, 2, 3, 4), b"v" * 32)]
    contexts = {study.context(*one) for one in (base, *changed)}
    for other in _other_studies(study):
        contexts.add(other.context(*base))
    assert len(contexts) == 1 + 6 + 10
    masks = {self_mask(1, 1, context, 1).tobytes() for context in contexts}
    assert len(masks) == len(contexts)


def _other_studies(study: SumStudy) -> list[SumStudy]:
    """Return studies that differ in one thing each: terms, experiment, identities, and each of seven parameters."""
    given = study.parameters
    swapped = (study.identities[1], study.identities[0], *study.identities[2:])
    found = [replace(study, terms=bytes(32)), replace(study, experiment=b"e" * 16), replace(study, identities=swapped)]
    more = (*study.identities, identity(6).public)
    found.append(replace(study, parameters=replace(given, sites=6), identities=more))
    changes = ({"colluders": 2}, {"quorum": 5}, {"dimension": 5}, {"width": 48}, {"rounds": 9}, {"reserve": 9})
    found += [replace(study, parameters=replace(given, **change)) for change in changes]
    assert len({astuple(one.parameters) for one in found}) == 8
    return found


def test_two_sites_with_one_identity_are_refused() -> None:
    study = study_of(5, 1, 4)
    with pytest.raises(InputError, match="two sites have the same identity"):
        replace(study, identities=(study.identities[1], *study.identities[1:]))
    with pytest.raises(InputError, match="4 identities for 5 sites"):
        replace(study, identities=study.identities[1:])


IMPOSSIBLE = [
    ({"sites": 2}, r"sites: 2 is not possible; it must be a whole number from 3 to 1000"),
    ({"colluders": 0}, r"colluders: 0 is not possible; it must be a whole number from 1 to 8"),
    ({"colluders": 9}, r"colluders: 9 is not possible.*two honest sites must be left"),
    ({"quorum": 5}, r"quorum: 5 is not possible; it must be a whole number from 6 to 10, because a smaller quorum"),
    ({"quorum": 11}, r"quorum: 11 is not possible"),
    ({"quorum": 8.0}, r"quorum: 8.0 is not possible"),
    ({"sites": True}, r"sites: True is not possible"),
    ({"dimension": 0}, r"dimension: 0 is not possible"),
    ({"width": 64}, r"64 bits cannot be sent: choose one of \(40, 48, 56\)"),
    ({"reserve": -1}, r"reserve: -1 is not possible"),
]


@pytest.mark.parametrize(("change", "message"), IMPOSSIBLE)
def test_impossible_parameters_are_refused(change: dict[str, int], message: str) -> None:
    with pytest.raises(InputError, match=message):
        replace(SumParameters(10, 1, 8, 8000, 40, 300, 6), **change)


def test_the_width_is_the_first_that_has_room() -> None:
    assert choose_format(60_000, 0.075 * 4080, 73.17, 10, 7) == (40, 14)
    assert choose_format(60, 0.075 * 4080, 73.17, 10, 7) == (40, 20)
    assert choose_format(60_000_000, 4080.0, 73.17, 10, 7) == (56, 17)
    assert [default_reserve(rounds) for rounds in (1, 150, 151, 300)] == [3, 3, 4, 6]
    with pytest.raises(InputError, match="does not fit into 56 bits"):
        choose_format(2**50, 4080.0, 1.0, 10, 7)
    for wrong in (float("nan"), float("inf"), 0.0, -1.0):
        with pytest.raises(InputError, match="must be a finite number above 0"):
            choose_format(10, wrong, 1.0, 10, 7)


def test_a_masked_upload_is_uniform() -> None:
    dimension = 200_000
    made = group(study_of(4, 1, 3, dimension=dimension), slots=2)
    zeros = np.zeros(dimension, np.int64)
    uploads = [
        np.frombuffer(MaskedUpload.from_bytes(made.members[1].upload(made.question(slot), zeros)).packed, np.uint8)
        for slot in (0, 1)
    ]
    for data in uploads:
        low = np.packbits((data.reshape(-1, 5)[:, 0] & 1).reshape(-1, 8), axis=1)[:, 0]
        for values, kinds in ((data, 256), (np.ascontiguousarray(data).view("<u2"), 65536), (low, 256)):
            counts = np.bincount(values, minlength=kinds)
            statistic = ((counts - counts.mean()) ** 2 / counts.mean()).sum()
            assert 1e-4 < chi2.sf(statistic, kinds - 1) < 1 - 1e-4
    first, second = (unpack(data.tobytes(), 40).astype(float) for data in uploads)
    assert abs(np.corrcoef(first, second)[0, 1]) < 4 / np.sqrt(dimension)  # two slots are independent


def test_masked_uploads_do_not_depend_on_what_they_hide() -> None:
    made = group(study_of(4, 1, 3, dimension=500), slots=50)
    y = np.arange(500) * 2**28
    seen = []
    for slot in range(50):
        packed = MaskedUpload.from_bytes(made.members[1].upload(made.question(slot), y)).packed
        seen.append(unpack(packed, 40).astype(float))
    found = np.corrcoef(np.concatenate(seen), np.tile(y, 50).astype(float))[0, 1]
    assert abs(found) < 4 / np.sqrt(50 * 500)


KNOWN = "8ad44050ec2b9bfb9caaea52be30de40c9eb0fb0ffee4b762f88ff76673211c2"


def code_lines(path: Path, names: tuple[str, ...] = ()) -> int:
    """Return the lines of a module without imports, docstrings, comments and blank lines, each statement on few.

    With names only the lines of these classes and functions of the module count.
    """
    tree = ast.parse(path.read_text())
    if names:
        tree.body = [one for one in tree.body if isinstance(one, ast.ClassDef | ast.FunctionDef) and one.name in names]
        assert len(tree.body) == len(names)
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
            body = node.body[1:] if ast.get_docstring(node) is not None else node.body
            node.body = [one for one in body if not isinstance(one, ast.Import | ast.ImportFrom)] or [ast.Pass()]
    return sum(bool(line.strip()) for line in ast.unparse(tree).splitlines())


def test_what_is_made_by_hand_stays_small_enough_to_read() -> None:
    """Secret sharing, masks and contexts, and the decoder of wrong shares; all other cryptography is the library's."""
    folder = Path(masking.__file__).parent
    assert 50 < sum(code_lines(folder / f"{name}.py") for name in ("shamir", "masking", "sum_context")) <= 150
    assert 40 < code_lines(folder / "opening.py", ("_Shares", "_shortest_recurrence")) <= 65
