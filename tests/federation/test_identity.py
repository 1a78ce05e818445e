"""Identities: created once, private, and published as one line of text with exactly one valid form."""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
import threading
from pathlib import Path

import pytest
from cryptography.hazmat.bindings._rust import openssl
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from hypothesis import given
from hypothesis import strategies as st

from taciturn.errors import CorruptFile, InputError
from taciturn.federation import identity
from taciturn.federation.identity import KEY_DOMAIN, PREFIX, Identity, PublicIdentity
from taciturn.privacy.signatures import PublicKey, SigningKey, new_key, private_pem, read_secret
from taciturn.secure_sum.sum_context import HPKE_BYTES, hpke_suite

PRIME = 2**255 - 19


@pytest.fixture(scope="module")
def north(tmp_path_factory: pytest.TempPathFactory) -> Identity:
    return Identity.create(tmp_path_factory.mktemp("north") / "identity")


@pytest.fixture(scope="module")
def south(tmp_path_factory: pytest.TempPathFactory) -> Identity:
    return Identity.create(tmp_path_factory.mktemp("south") / "identity")


def line(raw: bytes) -> str:
    return PREFIX + base64.urlsafe_b64encode(raw).decode().rstrip("=")


def refused(text: object) -> str:
    with pytest.raises(InputError) as caught:
        PublicIdentity.parse(text)  # type: ignore[arg-type]
    return str(caught.value)


def test_what_was_pasted_is_quoted_from_its_beginning_and_what_is_too_much_is_said(north: Identity) -> None:
    whole = str(north.public)
    assert f"identity '{whole[:39]}…' is damaged: copy the whole line again" in refused(whole[:-3])
    said = refused(f"{whole}\nfingerprint {north.public.fingerprint}")
    assert said.endswith(f"is damaged: keep only the line that begins with {PREFIX}")


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077])
def test_an_identity_is_private_and_is_read_back_unchanged(tmp_path: Path, umask: int) -> None:
    path = tmp_path / "identity"
    before = os.umask(umask)
    try:
        made = Identity.create(path)
    finally:
        os.umask(before)
    assert path.stat().st_mode & 0o777 == 0o600 and list(tmp_path.iterdir()) == [path]
    found = Identity.open(path)
    assert found.public == made.public == PublicIdentity.parse(str(made.public))
    assert found.decrypt(made.public.encrypt(b"z", b"i"), b"i") == b"z"
    assert made.public.verify(b"m", found.sign(b"m")) and not made.public.verify(b"n", found.sign(b"m"))


def test_an_identity_is_never_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "identity"
    Identity.create(path)
    before = path.read_bytes()
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    (tmp_path / "folder").mkdir()
    for taken in (path, tmp_path / "dangling", tmp_path / "folder"):
        with pytest.raises(InputError, match="already"):
            Identity.create(taken)
    assert path.read_bytes() == before and not (tmp_path / "nowhere").exists()
    with pytest.raises(InputError, match="there is no folder"):
        Identity.create(tmp_path / "none" / "identity")


def test_one_of_many_at_once_makes_the_identity(tmp_path: Path) -> None:
    made: list[Identity] = []
    refusals: list[str] = []
    start = threading.Barrier(6)

    def create() -> None:
        start.wait()
        try:
            made.append(Identity.create(tmp_path / "identity"))
        except InputError as error:
            refusals.append(str(error))

    threads = [threading.Thread(target=create) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(made) == 1 and len(refusals) == 5
    assert Identity.open(tmp_path / "identity").public == made[0].public


def test_who_comes_second_does_not_believe_to_have_made_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "identity"

    def later() -> bytes:
        monkeypatch.setattr(identity, "new_key", new_key)
        Identity.create(path)  # another process is faster
        return new_key()

    monkeypatch.setattr(identity, "new_key", later)
    with pytest.raises(InputError, match="already"):
        Identity.create(path)


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o644, 0o610, 0o602, 0o777])
def test_a_file_that_others_may_touch_is_refused(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "identity"
    Identity.create(path)
    path.chmod(mode)
    with pytest.raises(InputError, match="chmod 600"):
        Identity.open(path)
    path.chmod(0o400)
    Identity.open(path)


def test_no_changed_byte_of_the_file_makes_another_identity(tmp_path: Path) -> None:
    path = tmp_path / "identity"
    made = Identity.create(path)
    whole = path.read_bytes()
    public, signing, sealing = whole.splitlines(keepends=True)[0], whole[-238:-119], whole[-119:]
    assert public + signing + sealing == whole
    cut = [whole[:at] for at in range(len(whole))]
    swapped = [public + sealing + signing, public + signing * 2, public + sealing * 2, signing + sealing]
    for content in (*cut, *swapped, whole + b"\n", b"\n" + whole, b"x" * 10**6):
        path.write_bytes(content)
        with pytest.raises(CorruptFile):
            Identity.open(path)
    ignored = 0  # five bits of an X25519 key are ignored
    for at in range(len(whole)):
        for bit in (1, 4, 32):
            path.write_bytes(whole[:at] + bytes([whole[at] ^ bit]) + whole[at + 1 :])
            try:
                ignored += Identity.open(path).public == made.public
            except CorruptFile:
                continue
            else:
                assert ignored <= 5 and len(whole) - 119 < at, "another key was taken for the one in the file"


def test_keys_of_two_owners_are_no_identity(tmp_path: Path, north: Identity, south: Identity) -> None:
    one, other = (found.path.read_bytes() for found in (north, south))
    path = tmp_path / "identity"
    path.touch(0o600)
    for content in (one[:-119] + other[-119:], one[:-238] + other[-238:], other[:-119] + one[-119:]):
        path.write_bytes(content)
        with pytest.raises(CorruptFile):
            Identity.open(path)


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    for path in (tmp_path / "none", tmp_path):
        with pytest.raises(InputError, match="there is no identity"):
            Identity.open(path)
    with pytest.raises(InputError, match="there is no key"):
        read_secret(tmp_path / "none")


def test_private_keys_are_not_shown(north: Identity) -> None:
    for pem in north.path.read_bytes().split(b"-----BEGIN PRIVATE KEY-----\n")[1:]:
        secret = pem.split(b"\n")[0].decode()
        assert secret not in repr(north) and secret not in repr(north._signing)
    assert "PRIVATE" not in repr(SigningKey(new_key(), Path("place")))


def test_a_public_identity_is_one_short_line(north: Identity, south: Identity) -> None:
    text = str(north.public)
    assert text.startswith(PREFIX) and text.isprintable() and " " not in text and len(text) == len(PREFIX) + 171
    assert PublicIdentity.parse(text) == north.public != south.public
    groups = north.public.fingerprint.split(" ")
    assert len(groups) == 8 and all(len(group) == 4 and int(group, 16) >= 0 for group in groups)
    assert 4 * len("".join(groups)) >= 100  # bits
    assert north.public.fingerprint != south.public.fingerprint


def test_every_changed_bit_of_a_public_identity_is_noticed(north: Identity) -> None:
    raw = north.public.keys + north.public.signature
    for at in range(8 * len(raw)):
        changed = bytearray(raw)
        changed[at // 8] ^= 1 << at % 8
        refused(line(bytes(changed)))


def test_every_other_text_is_refused(north: Identity) -> None:
    text = str(north.public)
    for at in range(len(text)):
        refused(text[:at])
        for sign in "A-_+/= \n\0é":
            if sign != text[at]:
                refused(text[:at] + sign + text[at + 1 :])
            refused(text[:at] + sign + text[at:])
    for other in (f"{text}=", f"{text}\n", f" {text}", text * 2, text.upper(), PREFIX, f"{PREFIX}===", "x" * 10**6):
        refused(other)
    for thing in (None, 3, text.encode(), [text], {text: text}, "", "\ud800"):
        refused(thing)
    assert "damaged" in refused(text[:-1]) and "begins with taciturn-id-1:" in refused("taciturn-id-2:" + text[11:])


@given(st.binary(max_size=140))
def test_random_bytes_are_no_identity(raw: bytes) -> None:
    refused(line(raw))
    assert "damaged" in refused(line(raw[:100]))
    refused(line(raw.ljust(128, b"\0")))


def test_a_key_of_another_party_does_not_fit(north: Identity, south: Identity) -> None:
    one, other = north.public, south.public
    for signing, sealing, signature in (
        (one.signing, other.sealing, one.signature),
        (one.signing, other.sealing, other.signature),
        (other.signing, one.sealing, one.signature),
        (one.signing, one.sealing, other.signature),
        (one.signing, one.sealing, north.sign(one.sealing)),  # signed, but without the domain prefix
    ):
        with pytest.raises(InputError, match="do not belong together"):
            PublicIdentity(signing, sealing, signature)


def small_points() -> list[bytes]:
    """All points of Ed25519 whose order divides 8, and other spellings of them."""
    ys = [0, 1, PRIME - 1, identity._ORDER_8, PRIME - identity._ORDER_8, PRIME, PRIME + 1]
    return [(y | sign << 255).to_bytes(32, "little") for y in ys for sign in (0, 1)]


def test_a_key_that_signs_everything_is_refused(north: Identity) -> None:
    d = -121665 * pow(121666, -1, PRIME) % PRIME
    assert (d * identity._ORDER_8**4 + 2 * identity._ORDER_8**2 - 1) % PRIME == 0  # twice the point has order 4
    sealing = north.public.sealing
    forged = [
        (point, r + bytes(32))
        for point in small_points()
        for r in small_points()
        if PublicKey(point).verify(KEY_DOMAIN + sealing, r + bytes(32))
    ]
    assert len({point for point, _ in forged}) >= 3  # no private key exists for them; how many depends on the message
    for point, signature in forged:
        with pytest.raises(InputError, match="weak key"):
            PublicIdentity(PublicKey(point), sealing, signature)


@pytest.mark.parametrize("u", [
    0, 1, PRIME - 1, PRIME, PRIME + 1, 2**255 - 1, 2**255 + 9, 2**256 - 1,
    325606250916557431795983626356110631294008115727848805560023387167927233504,
    39382357235489614581723060781553021112529911719440698176882885853963445705823,
])  # fmt: skip
def test_a_key_that_hides_nothing_or_has_two_spellings_is_refused(north: Identity, u: int) -> None:
    sealing = u.to_bytes(32, "little")
    with pytest.raises(InputError, match="weak key"):
        PublicIdentity(north.public.signing, sealing, north.sign(KEY_DOMAIN + sealing))


@pytest.mark.parametrize("lengths", [(31, 32), (33, 32), (32, 31), (32, 33), (0, 0)])
def test_keys_have_their_length(north: Identity, lengths: tuple[int, int]) -> None:
    with pytest.raises(InputError):
        PublicIdentity(PublicKey(bytes([7]) * lengths[0]), bytes([9]) * lengths[1], bytes(64))


@given(st.binary(max_size=200), st.binary(max_size=60))
def test_what_is_encrypted_opens_for_its_receiver_alone(north: Identity, south: Identity, m: bytes, i: bytes) -> None:
    sealed = north.public.encrypt(m, i)
    assert len(sealed) == len(m) + HPKE_BYTES
    assert north.decrypt(sealed, i) == m == reference(north, sealed, i)
    assert south.decrypt(sealed, i) is None and north.decrypt(sealed, i + b"\0") is None


@given(st.binary(max_size=100))
def test_what_was_never_encrypted_does_not_open(north: Identity, data: bytes) -> None:
    assert north.decrypt(data, b"") is None and north.decrypt(bytes(32) + data, b"") is None


# RFC 8032, section 7.1, tests 1 to 3: secret key, public key, message, signature
RFC_8032 = [
    ("9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60",
     "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a", "",
     "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e065224901555fb8821590a33bacc61e39701cf9b46bd25bf5f0595bbe24655"
     "141438e7a100b"),
    ("4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb",
     "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c", "72",
     "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302aeeb00"
     "d291612bb0c00"),
    ("c5aa8df43f9f837bedb7442f31dcb7b166d38535076f094b85ce3a2e0b4458f7",
     "fc51cd8e6218a1a38da47ed00230f0580816ed13ba3303ac5deb911548908025", "af82",
     "6291d657deec24024827e69c3abe01a30ce548a284743a445e3680d7db5ac3ac18ff9b538d16f290ae67f760984dc6594a7c15e9716ed28dc02"
     "7beceea1ec40a"),
]  # fmt: skip


@pytest.mark.parametrize(("secret", "public", "message", "signature"), RFC_8032)
def test_signatures_are_those_of_rfc_8032(secret: str, public: str, message: str, signature: str) -> None:
    key = SigningKey(private_pem(Ed25519PrivateKey.from_private_bytes(bytes.fromhex(secret))), Path("vector"))
    m, s = bytes.fromhex(message), bytes.fromhex(signature)
    assert key.public.raw.hex() == public and key.sign(m) == s and key.public.verify(m, s)
    order = 2**252 + 27742317777372353535851937790883648493
    again = s[:32] + (int.from_bytes(s[32:], "little") + order).to_bytes(32, "little")
    assert not key.public.verify(m, again)  # a message has exactly one signature


# RFC 9180, appendix A.2.1, first message; the library's public interface lacks only the aad
SK_R = "8057991eef8f1f1af18f4a9491d16a1ce333f695d4db8e38da75975c4478e0fb"
ENC = "1afa08d3dec047a643885163f1180476fa7ddb54c6a8029ea33f95796bf2ac4a"
CT = "1c5250d8034ec2b784ba2cfd69dbdb8af406cfe3ff938e131f0def8c8b60b4db21993c62ce81883d2dd1b51a28"


def test_encryption_is_that_of_rfc_9180() -> None:
    key = X25519PrivateKey.from_private_bytes(bytes.fromhex(SK_R))
    sealed, info, aad = bytes.fromhex(ENC + CT), b"Ode on a Grecian Urn", b"Count-0"
    found = openssl.hpke._decrypt_with_aad(hpke_suite(), sealed, key, info, aad)
    assert found == b"Beauty is truth, truth beauty" == hpke_open(key, sealed, info, aad)


def reference(owner: Identity, sealed: bytes, info: bytes) -> bytes:
    """Decrypt with a second implementation, from the text of RFC 9180, and the key in the owner's file."""
    key = load_pem_private_key(owner.path.read_bytes()[-119:], password=None)
    assert isinstance(key, X25519PrivateKey)
    return hpke_open(key, sealed, info, b"")


def hpke_open(key: X25519PrivateKey, sealed: bytes, info: bytes, aad: bytes) -> bytes:
    """RFC 9180, base mode, DHKEM(X25519, HKDF-SHA256), HKDF-SHA256, ChaCha20Poly1305, one message."""
    kem, suite = b"KEM\x00\x20", b"HPKE\x00\x20\x00\x01\x00\x03"

    def extract(who: bytes, salt: bytes, label: bytes, ikm: bytes) -> bytes:
        return hmac.digest(salt or bytes(32), b"HPKE-v1" + who + label + ikm, "sha256")

    def expand(who: bytes, prk: bytes, label: bytes, context: bytes, length: int) -> bytes:
        text = length.to_bytes(2, "big") + b"HPKE-v1" + who + label + context
        return hmac.digest(prk, text + b"\x01", hashlib.sha256)[:length]

    enc, ciphertext = sealed[:32], sealed[32:]
    dh = key.exchange(X25519PublicKey.from_public_bytes(enc))
    pair = enc + key.public_key().public_bytes_raw()
    shared = expand(kem, extract(kem, b"", b"eae_prk", dh), b"shared_secret", pair, 32)
    context = b"\x00" + extract(suite, b"", b"psk_id_hash", b"") + extract(suite, b"", b"info_hash", info)
    secret = extract(suite, shared, b"secret", b"")
    nonce = expand(suite, secret, b"base_nonce", context, 12)
    return ChaCha20Poly1305(expand(suite, secret, b"key", context, 32)).decrypt(nonce, ciphertext, aad)
