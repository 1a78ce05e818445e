"""Start-up kits: a certificate of one private authority for the hub and every site, and the address of the hub.

A kit is exactly four files. It opens a connection and nothing else: what a site says and believes is signed and sealed
with identities of its own (`identity`), which are in no kit.
"""

from __future__ import annotations

import datetime
import ipaddress
import json
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from taciturn.core.storage import make_folder, write_text
from taciturn.errors import InputError
from taciturn.federation.terms import Terms

HUB = "server"  # the kit of the hub, and its name
AUTHORITY, ISSUED = "authority", "issued.json"
CERTIFICATE, KEY, CA, ADDRESS = "own.crt", "own.key", "ca.crt", "address.json"
FILES = frozenset({CERTIFICATE, KEY, CA, ADDRESS})
DAYS = 360  # a certificate lasts
AUTHORITY_DAYS = 3600
SOON = datetime.timedelta(days=30)


class Kit(NamedTuple):
    """A kit that was looked at."""

    path: Path
    owner: str
    address: str  # host:port
    expires: datetime.datetime

    @property
    def expires_soon(self) -> bool:
        """Whether it is time to renew it."""
        return self.expires - datetime.datetime.now(datetime.UTC) < SOON


def provision(terms: Terms, out: Path, renew: Iterable[str] = ()) -> dict[str, Path]:
    """The kits of the hub and the sites.

    The same authority signs those that are added later. A kit that is there already is not touched, unless it is to be
    renewed: then it gets a new key and certificate.
    """
    make_folder(out, exist_ok=True, private=True)
    wanted = (HUB, *terms.sites)
    for name in renew:
        if name not in wanted:
            raise InputError(f"{name} has no kit to renew: there are {', '.join(wanted)}")
    key, certificate = _authority(out / AUTHORITY)
    kits = {name: out / name for name in wanted}
    for name, kit in kits.items():
        if not kit.exists() or name in renew:
            make_folder(kit, exist_ok=True, private=True)
            own, signed = _issue(name, key, certificate, terms.host if name == HUB else "")
            _register(out, name, signed)
            write_text(kit / KEY, _private(own), private=True)
            write_text(kit / CERTIFICATE, _pem(signed), private=True)
            write_text(kit / CA, _pem(certificate), private=True)
            write_text(kit / ADDRESS, json.dumps({"host": terms.host, "port": terms.port}) + "\n", private=True)
    return kits


def read_kit(path: Path, owner: str | None = None) -> Kit:
    """A kit, where it is whole, in date, nothing but a kit, and its owner's where one is named.

    Raises
    ------
    InputError
        With a sentence on what is wrong. A file that does not belong into a kit is a reason too.
    """
    if not path.is_dir():
        raise InputError(f"there is no kit {path}: 'taciturn federation provision' makes the kits")
    found = {entry.name for entry in path.iterdir()}
    if extra := sorted(found - FILES):
        raise InputError(f"{path} has {', '.join(extra)}, which no kit has: take it out, or ask for a new kit")
    if missing := sorted(FILES - found):
        raise InputError(f"{path} is no kit: {', '.join(missing)} is missing")
    for name in FILES:
        if (path / name).is_symlink() or not (path / name).is_file():
            raise InputError(f"{path / name} is not a plain file: ask for a new kit")
    try:
        certificate = x509.load_pem_x509_certificate((path / CERTIFICATE).read_bytes())
        authority = x509.load_pem_x509_certificate((path / CA).read_bytes())
        key = serialization.load_pem_private_key((path / KEY).read_bytes(), None)
        address = json.loads((path / ADDRESS).read_text(encoding="utf-8"))
        place = f"{address['host']}:{int(address['port'])}"
        name = str(certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)[0].value)
    except (OSError, ValueError, KeyError, TypeError, IndexError) as error:
        raise InputError(f"{path} is damaged: {error}") from error
    if owner is not None and name != owner:
        raise InputError(f"{path} is the kit of {name}, and not of {owner}")
    if certificate.public_key() != key.public_key():
        raise InputError(f"{path / KEY} is not the key of {CERTIFICATE} beside it")
    try:
        certificate.verify_directly_issued_by(authority)
    except Exception as error:
        raise InputError(f"{path / CERTIFICATE} was not issued by the authority in {CA} beside it") from error
    expires = min(certificate.not_valid_after_utc, authority.not_valid_after_utc)
    if expires < datetime.datetime.now(datetime.UTC):
        raise InputError(f"{path / CERTIFICATE} has expired on {expires:%Y-%m-%d}: ask for a renewed kit")
    return Kit(path, name, place, expires)


def check_address(kit: Kit, terms: Terms) -> None:
    """Refuse a kit that was made for another host or port."""
    if kit.address != f"{terms.host}:{terms.port}":
        raise InputError(
            f"{kit.path} was made for {kit.address}, and {terms.path} says {terms.host}:{terms.port}: "
            "a change of the address needs renewed kits"
        )


def issued(out: Path) -> dict[str, str]:
    """The SHA-256 of the certificate that each party has now; those before it are worth nothing."""
    path = out / AUTHORITY / ISSUED
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError(f"{path} is missing: 'taciturn federation provision' makes the kits") from None
    except ValueError as error:
        raise InputError(f"{path} is damaged: {error}") from error
    return {str(name): str(digest) for name, digest in found.items()}


def _register(out: Path, name: str, certificate: x509.Certificate) -> None:
    """Take note of a new certificate before its kit is written: an older one counts no more."""
    path = out / AUTHORITY / ISSUED
    known = issued(out) if path.exists() else {}
    known[name] = certificate.fingerprint(hashes.SHA256()).hex()
    write_text(path, json.dumps(known, indent=1) + "\n", private=True)


def _authority(folder: Path) -> tuple[ec.EllipticCurvePrivateKey, x509.Certificate]:
    """The key that signs certificates, made where there is none."""
    try:
        key = serialization.load_pem_private_key((folder / "ca.key").read_bytes(), None)
        certificate = x509.load_pem_x509_certificate((folder / CA).read_bytes())
    except FileNotFoundError:
        if folder.exists():
            raise InputError(f"{folder} has no {CA} and ca.key: move it away to begin with a new authority") from None
        make_folder(folder, private=True)
        key, certificate = _new_authority()
        write_text(folder / "ca.key", _private(key), private=True)
        write_text(folder / CA, _pem(certificate), private=True)
    except ValueError as error:
        raise InputError(f"{folder} is damaged: {error}") from error
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise InputError(f"{folder} has a key of another kind than Taciturn makes")
    return key, certificate


def _new_authority() -> tuple[ec.EllipticCurvePrivateKey, x509.Certificate]:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "taciturn federation authority")])
    builder = _builder(name, name, key.public_key(), AUTHORITY_DAYS)
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    builder = builder.add_extension(_usage(signs_certificates=True), critical=True)
    return key, builder.sign(key, hashes.SHA256())


def _issue(
    name: str, authority_key: ec.EllipticCurvePrivateKey, authority: x509.Certificate, host: str
) -> tuple[ec.EllipticCurvePrivateKey, x509.Certificate]:
    """A key and its certificate; with a host it may serve there, without it may only connect."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    builder = _builder(subject, authority.subject, key.public_key(), DAYS)
    builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
    builder = builder.add_extension(_usage(signs_certificates=False), critical=True)
    use = ExtendedKeyUsageOID.SERVER_AUTH if host else ExtendedKeyUsageOID.CLIENT_AUTH
    builder = builder.add_extension(x509.ExtendedKeyUsage([use]), critical=False)
    if host:
        builder = builder.add_extension(x509.SubjectAlternativeName([_host(host)]), critical=False)
    return key, builder.sign(authority_key, hashes.SHA256())


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, days: int
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))  # clocks differ
        .not_valid_after(now + datetime.timedelta(days=days))
    )


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _host(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _private(key: ec.EllipticCurvePrivateKey) -> str:
    form = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return key.private_bytes(*form).decode()


def _pem(certificate: x509.Certificate) -> str:
    return certificate.public_bytes(serialization.Encoding.PEM).decode()
