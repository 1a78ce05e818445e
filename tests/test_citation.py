"""How Taciturn is cited."""

from __future__ import annotations

import pytest

from taciturn.version import VERSION
from tests.cli.helpers import ROOT


def test_the_citation_is_whole_and_of_this_version() -> None:
    yaml = pytest.importorskip("yaml")
    found = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert {"cff-version", "message", "title", "authors"} <= found.keys()  # what the format requires
    assert str(found["version"]) == VERSION
    assert found["authors"] == [{"name": "The Taciturn authors"}] and found["license"] == "Apache-2.0"
    paper = found["references"][0]
    assert [author["family-names"] for author in paper["authors"]] == ["Ryu", "Kim"]
    assert "Inexact ADMM with Multiple Local Updates" in paper["title"]
