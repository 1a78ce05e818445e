"""A study at the coordinator, begun or taken up again from its run folder."""

from __future__ import annotations

import uuid
from pathlib import Path

from tacit.data import encode, read_schema, read_table
from tacit.errors import InputError
from tacit.federation.agreement import agree
from tacit.federation.books import begin_books, study_of
from tacit.federation.coordinator import Coordinator
from tacit.federation.terms import Terms
from tacit.results.files import to_json
from tacit.results.folder import RunFolder
from tacit.types import Shard

TERMS = "federation.json"


def open_study(terms: Terms, path: Path) -> Coordinator:
    """The study of these terms in a run folder: a new one, or the one that is there."""
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
    folder.check_at_home()
    begun = folder.read_json(TERMS)
    if begun["terms"] != terms.digest:
        raise InputError(f"{path} was begun under other terms than {terms.path} has now: choose another --out")
    return Coordinator(agreement, study, folder, begun["experiment"])


def _own_test(terms: Terms) -> Shard | None:
    if not terms.test or terms.schema is None:
        return None
    s = terms.settings
    x, y = encode(read_table(terms.test), read_schema(terms.schema), s.intercept, s.precision, with_label=True)
    if y is None:
        raise TypeError("a test table has labels")
    return Shard(x, y)
