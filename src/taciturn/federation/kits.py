"""Start-up kits: for the hub and every site, a certificate of one private authority and the address of the hub.

A kit is exactly four files. It permits a connection and nothing else: messages are signed and sealed with identities
(`identity`), which are in no kit.
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
from taciturn.errors import CorruptFile, InputError
from taciturn.federation.terms import Terms
from taciturn.privacy.signatures import private_pem

HUB = "server"  # the hub's name and that of its kit
AUTHORITY, AUTHORITY_KEY, ISSUED = "authority", "ca.key", "issued.json"
CERTIFICATE, KEY, CA, ADDRESS = "own.crt", "own.key", "ca.crt", "address.json"
FILES = frozenset({CERTIFICATE, KEY, CA, ADDRESS})
DAYS, AUTHORITY_DAYS = 360, 3600  # for which a certificate is valid
SOON = datetime.timedelta(days=30)


class Kit(NamedTuple):
    """A kit that was checked."""

    path: Path
    owner: str
    address: str  # host:port
    expires: datetime.datetime

    @property
    def expires_soon(self) -> bool:
        """Whether it should be renewed."""
        return self.expires - datetime.datetime.now(datetime.UTC) < SOON


class _Credential(NamedTuple):
    key: ec.EllipticCurvePrivateKey
    certificate: x509.Certificate

    def write(self, key: Path, certificate: Path) -> None:
        write_text(key, private_pem(self.key).decode(), private=True)
        write_text(certificate, _pem(self.certificate), private=True)


def provision(terms: Terms, out: Path, renew: Iterable[str] = ()) -> dict[str, Path]:
    """Create the kits of the hub and the sites; the same authority signs kits that are added later.

    Parameters
    ----------
    terms
        The study's terms, which name the sites and the hub's address.
    out
        The folder for the kits and the authority.
    renew
        Names of existing kits that get a new key and certificate; other existing kits are not changed.

    Returns
    -------
    dict
        The folder of every kit, by name.

    Raises
    ------
    InputError
        If a kit to renew is not one of this study.
    CorruptFile
        If the authority is damaged.
    """
    make_folder(out, exist_ok=True, private=True)
    kits = {name: out / name for name in (HUB, *terms.sites)}
    for name in renew:
        if name not in kits:
            raise InputError(f"there is no kit {name} to renew: the kits are {', '.join(kits)}")
    authority = _load_authority(out / AUTHORITY)
    for name, kit in kits.items():
        if not kit.exists() or name in renew:
            make_folder(kit, exist_ok=True, private=True)
            own = _issue(name, authority, terms.host if name == HUB else "")
            _register(out, name, own.certificate)
            own.write(kit / KEY, kit / CERTIFICATE)
            write_text(kit / CA, _pem(authority.certificate), private=True)
            write_text(kit / ADDRESS, json.dumps({"host": terms.host, "port": terms.port}) + "\n", private=True)
    return kits


def read_kit(path: Path, owner: str | None = None) -> Kit:
    """Return a kit that is complete, valid now, and contains nothing else.

    Parameters
    ----------
    path
        The kit's folder.
    owner
        The name that the kit must have; None accepts any.

    Raises
    ------
    InputError
        If a file is missing or does not belong into a kit, or the kit is another party's or has expired.
    CorruptFile
        If a file is damaged.
    """
    if not path.is_dir():
        raise InputError(f"there is no kit {path}: 'taciturn federation provision' creates the kits")
    found = {entry.name for entry in path.iterdir()}
    if extra := sorted(found - FILES):
        raise InputError(f"{path} has {', '.join(extra)}, which does not belong into a kit: remove it or get a new kit")
    if missing := sorted(FILES - found):
        raise InputError(f"{path} is not a complete kit: {', '.join(missing)} is missing")
    for name in FILES:
        if (path / name).is_symlink() or not (path / name).is_file():
            raise InputError(f"{path / name} is not a regular file: get a new kit")
    try:
        certificate, authority = (
            x509.load_pem_x509_certificate((path / name).read_bytes()) for name in (CERTIFICATE, CA)
        )
        key = serialization.load_pem_private_key((path / KEY).read_bytes(), None)
        address = json.loads((path / ADDRESS).read_text(encoding="utf-8"))
        host_port = f"{address['host']}:{int(address['port'])}"
        name = str(certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)[0].value)
    except (OSError, ValueError, KeyError, TypeError, IndexError) as error:
        raise CorruptFile(f"{path} is damaged: {error}") from error
    if owner is not None and name != owner:
        raise InputError(f"{path} is the kit of {name}, not of {owner}")
    if certificate.public_key() != key.public_key():
        raise InputError(f"{path / KEY} is not the key of the {CERTIFICATE} next to it")
    try:
        certificate.verify_directly_issued_by(authority)
    except Exception as error:
        raise InputError(f"{path / CERTIFICATE} was not issued by the authority in the {CA} next to it") from error
    expires = min(certificate.not_valid_after_utc, authority.not_valid_after_utc)
    if expires < datetime.datetime.now(datetime.UTC):
        raise InputError(f"{path / CERTIFICATE} expired on {expires:%Y-%m-%d}: get a renewed kit")
    return Kit(path, name, host_port, expires)


def check_address(kit: Kit, terms: Terms) -> None:
    """Raise InputError if a kit was created for another host or port than the terms'."""
    if kit.address != f"{terms.host}:{terms.port}":
        raise InputError(
            f"{kit.path} was created for {kit.address}, but {terms.path} says {terms.host}:{terms.port}: "
            "a change of address needs renewed kits"
        )


def read_issued(out: Path) -> dict[str, str]:
    """Return the SHA-256 of each party's current certificate; earlier ones are no longer accepted.

    Raises
    ------
    CorruptFile
        If the register is missing or damaged.
    """
    path = out / AUTHORITY / ISSUED
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        return {str(name): str(digest) for name, digest in found.items()}
    except FileNotFoundError as error:
        raise CorruptFile(f"{path} is missing: 'taciturn federation provision' creates the kits") from error
    except (ValueError, AttributeError) as error:
        raise CorruptFile(f"{path} is damaged: {error}") from error


def _register(out: Path, name: str, certificate: x509.Certificate) -> None:
    """Record a new certificate before its kit is written, so that an older one is no longer accepted."""
    path = out / AUTHORITY / ISSUED
    known = read_issued(out) if path.exists() else {}
    known[name] = certificate.fingerprint(hashes.SHA256()).hex()
    write_text(path, json.dumps(known, indent=1) + "\n", private=True)


def _load_authority(folder: Path) -> _Credential:
    """Return the authority that signs certificates; create it if its folder does not exist."""
    if not folder.exists():
        make_folder(folder, private=True)
        created = _issue("taciturn federation authority", None)
        created.write(folder / AUTHORITY_KEY, folder / CA)
        return created
    try:
        key = serialization.load_pem_private_key((folder / AUTHORITY_KEY).read_bytes(), None)
        certificate = x509.load_pem_x509_certificate((folder / CA).read_bytes())
        if not isinstance(key, ec.EllipticCurvePrivateKey):
            raise ValueError(f"{AUTHORITY_KEY} is not an elliptic curve key")
    except FileNotFoundError as error:
        raise CorruptFile(
            f"{folder} lacks {CA} or {AUTHORITY_KEY}: move it away to start with a new authority"
        ) from error
    except ValueError as error:
        raise CorruptFile(f"{folder} is damaged: {error}") from error
    return _Credential(key, certificate)


def _issue(name: str, authority: _Credential | None, host: str = "") -> _Credential:
    """Return a key and its certificate.

    Without an authority, it is a new authority itself. With a host, it may serve there; otherwise it may only connect.
    """
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now, is_authority = datetime.datetime.now(datetime.UTC), authority is None
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(authority.certificate.subject if authority else subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))  # clocks differ
        .not_valid_after(now + datetime.timedelta(days=AUTHORITY_DAYS if is_authority else DAYS))
        .add_extension(x509.BasicConstraints(is_authority, 0 if is_authority else None), critical=True)
        .add_extension(_usage(is_authority), critical=True)
    )
    if not is_authority:
        use = ExtendedKeyUsageOID.SERVER_AUTH if host else ExtendedKeyUsageOID.CLIENT_AUTH
        builder = builder.add_extension(x509.ExtendedKeyUsage([use]), critical=False)
    if host:
        builder = builder.add_extension(x509.SubjectAlternativeName([_general_name(host)]), critical=False)
    return _Credential(key, builder.sign(authority.key if authority else key, hashes.SHA256()))


def _usage(is_authority: bool) -> x509.KeyUsage:
    unused = ("content_commitment", "key_encipherment", "data_encipherment", "key_agreement")
    return x509.KeyUsage(
        digital_signature=not is_authority,
        key_cert_sign=is_authority,
        crl_sign=is_authority,
        **dict.fromkeys((*unused, "encipher_only", "decipher_only"), False),
    )


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _pem(certificate: x509.Certificate) -> str:
    return certificate.public_bytes(serialization.Encoding.PEM).decode()
