"""A study at the coordinator, begun or taken up again from its run folder."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from pathlib import Path

from taciturn.core.storage import to_json, write_text
from taciturn.data import encode, read_schema, read_table
from taciturn.errors import InputError, unknown_name
from taciturn.federation.agreement import agree
from taciturn.federation.coordinator import Coordinator
from taciturn.federation.run_folder import begin_books, study_of
from taciturn.federation.terms import Terms
from taciturn.runs.folder import RunFolder
from taciturn.types import Shard

TERMS = "federation.json"


def open_study(terms: Terms, path: Path, without: Sequence[str] = ()) -> Coordinator:
    """The study of these terms in a run folder: a new one, or the one that is there.

    `without` names sites that the study goes on without, from its last checkpoint: they are not asked again, and
    what they have sent no longer counts. The folder remembers them.
    """
    published = terms.published()
    agreement = agree(terms, published)
    test = published.test if published else _own_test(terms)
    test = terms.mapped(test) if test else None
    study = study_of(agreement, test=test)
    if not (path / TERMS).exists():
        if path.exists():
            raise InputError(f"{path} exists and is no run folder of a federation: choose another --out")
        experiment = uuid.uuid4().hex
        begin_books(path, study, files={TERMS: to_json({"experiment": experiment, "terms": terms.digest}) + "\n"})
    folder = RunFolder.open(path)
    folder.check_home_machine()
    begun = folder.read_json(TERMS)
    if begun["terms"] != terms.digest:
        raise InputError(f"{path} was begun under other terms than {terms.path} has now: choose another --out")
    before = begun.get("without", [])
    new = [site for site in dict.fromkeys(without) if site not in before]
    _check_left_out(terms, folder, [*before, *new], bool(new))
    coordinator = Coordinator(agreement, study, folder, begun["experiment"], (*before, *new))
    if new:
        write_text(folder.path / TERMS, to_json(begun | {"without": coordinator.without}) + "\n")
        for site in new:
            coordinator.note(event="left out", site=site, round=coordinator.state.round)
    return coordinator


def _check_left_out(terms: Terms, folder: RunFolder, sites: Sequence[str], new: bool) -> None:
    for site in sites:
        if site not in terms.sites:
            raise unknown_name("site", site, terms.sites)
    if new and folder.finished:
        raise InputError(f"{folder.path} has ended: no site can be left out of it")
    if new and folder.busy:
        raise InputError(f"{folder.path} is being worked on by another process: stop it first")
    left = len(terms.sites) - len(sites)
    if left < terms.quorum:
        raise InputError(
            f"without {', '.join(sites)} there are {left} sites, and quorum is {terms.quorum}: "
            f"lower it in [running] of {terms.path}, or leave fewer out"
        )


def _own_test(terms: Terms) -> Shard | None:
    if not terms.test or terms.schema is None:
        return None
    s = terms.settings
    x, y = encode(read_table(terms.test), read_schema(terms.schema), s.intercept, s.precision, with_label=True)
    if y is None:
        raise TypeError("a test table has labels")
    return Shard(x, y)
