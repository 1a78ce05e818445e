"""The address that is written into a kit, held against the terms."""

from __future__ import annotations

import json
from pathlib import Path

from tacit.errors import InputError
from tacit.federation.terms import Terms


def check_address(kit: Path, terms: Terms) -> None:
    """Refuse a kit that was made for another host or port."""
    for name in ("fed_server.json", "fed_client.json"):
        path = kit / "startup" / name
        if path.is_file():
            address = json.loads(path.read_text(encoding="utf-8"))["servers"][0]["service"]["target"]
            if address != f"{terms.host}:{terms.port}":
                raise InputError(
                    f"{kit} was made for {address}, and {terms.path} says {terms.host}:{terms.port}: "
                    "a change of the address needs new kits"
                )
