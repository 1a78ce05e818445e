"""Settings that an algorithm refuses."""

from __future__ import annotations

import pytest

from taciturn.errors import InputError
from tests.random_problems import build, problem, shards

PARTS = shards(0)


@pytest.mark.parametrize(
    ("name", "changes", "of", "sentence"),
    [
        ("admm", {}, {"loss": "hinge"}, "admm solves smooth subproblems"),
        ("admm", {}, {"regulariser": "l1"}, "admm solves smooth subproblems"),
        ("objt", {}, {"feasible": "l2-ball"}, "objt supports the sets all and box"),
        ("objt", {"radius": "konstant"}, {}, r"no radius 'konstant' \(did you mean 'constant'\?\)"),
        ("outp", {"outp_noise": "publish"}, {}, r"no outp-noise 'publish' \(did you mean 'published'\?\)"),
        ("outp", {"outp_noise": "calibrated"}, {"loss": "hinge"}, "bounded gradient and curvature"),
        ("outp", {"outp_noise": "calibrated"}, {"loss": "squared"}, "bounded gradient and curvature"),
    ],
)  # fmt: skip
def test_unsupported_settings_are_refused_with_a_reason(
    name: str, changes: dict[str, str], of: dict[str, str], sentence: str
) -> None:
    kwargs: dict[str, object] = dict(changes)
    with pytest.raises(InputError, match=sentence):
        build(name, problem(PARTS, **of), [1.0], **kwargs)  # type: ignore[arg-type]
