"""Start-up kits: an identity for everybody, certificates of one private authority, and the locks."""

from __future__ import annotations

import contextlib
import io
import re
import shutil
from pathlib import Path
from typing import Any

from tacit.errors import InputError
from tacit.federation.flare.locks import server_locks, site_locks, write_locks
from tacit.federation.flare.names import ADMIN, ADMIN_KIT, SERVER_KIT, organisation
from tacit.federation.terms import Terms
from tacit.results.files import write_text

AUTHORITY = "authority"  # NVFlare's own folder: with the private key that signs certificates
PROJECT = "tacit"  # its name there, whatever the study is called: one authority for all studies


def provision(terms: Terms, out: Path) -> dict[str, Path]:
    """The kits of server, coordinator and sites; the same authority signs those that are added later.

    A kit that is there already is not touched: its owner may have it.
    """
    out.mkdir(parents=True, exist_ok=True, mode=0o700)
    made = _nvflare_kits(terms, out / AUTHORITY)
    kits: dict[str, Path] = {}
    for name, source in {SERVER_KIT: terms.host, ADMIN_KIT: ADMIN, **{site: site for site in terms.sites}}.items():
        kit = out / name
        kits[name] = kit
        if kit.exists():
            continue
        shutil.copytree(made / source, kit)
        kit.chmod(0o700)
        if name == SERVER_KIT:
            write_locks(kit, server_locks(kit, len(terms.sites)))
        elif name != ADMIN_KIT:
            write_locks(kit, site_locks())
            write_text(kit / "federation.toml", _own_copy(terms))
            if terms.schema:
                shutil.copy(terms.schema, kit / terms.schema.name)
    return kits


def _own_copy(terms: Terms) -> str:
    """The terms as a site keeps them: the schema lies beside them."""
    text = terms.path.read_text(encoding="utf-8")
    if terms.schema is None:
        return text
    return re.sub(r"^schema\s*=\s*([\"']).*?\1", f'schema = "{terms.schema.name}"', text, count=1, flags=re.MULTILINE)


def _nvflare_kits(terms: Terms, workspace: Path) -> Path:
    """What `nvflare provision` makes of the project; the newest set."""
    from nvflare.lighter.entity import Project  # noqa: PLC0415
    from nvflare.lighter.impl.cert import CertBuilder  # noqa: PLC0415
    from nvflare.lighter.impl.signature import SignatureBuilder  # noqa: PLC0415
    from nvflare.lighter.impl.static_file import StaticFileBuilder  # noqa: PLC0415
    from nvflare.lighter.impl.workspace import WorkspaceBuilder  # noqa: PLC0415
    from nvflare.lighter.provisioner import Provisioner  # noqa: PLC0415

    project = Project(PROJECT, "a Tacit federation")
    ports: dict[str, Any] = {"fed_learn_port": terms.port, "admin_port": terms.port}
    project.set_server(terms.host, "consortium", ports)
    for site in terms.sites:
        project.add_client(site, organisation(site), {})
    project.add_admin(ADMIN, "consortium", {"role": "project_admin"})
    builders = [
        WorkspaceBuilder(),
        StaticFileBuilder(config_folder="config", scheme="grpc"),
        CertBuilder(),
        SignatureBuilder(),
    ]
    said = io.StringIO()
    try:
        with contextlib.redirect_stdout(said):
            Provisioner(str(workspace), builders).provision(project)
    except Exception as error:
        raise InputError(f"the kits cannot be made: {error} {said.getvalue()[-300:]}") from error
    sets = sorted((workspace / PROJECT).glob("prod_*"))
    if not sets:
        raise InputError(f"the kits cannot be made: {said.getvalue()[-500:]}")
    for path in (workspace / PROJECT / "state").iterdir():
        path.chmod(0o600)  # it holds every private key
    return sets[-1]
