"""Private evaluations, compared with exact measures: how far off they are, and how often their errors cover that.

    TACITURN_DATA=DIR taciturn bench private-evaluation-accuracy

Ten sites train on MNIST (dpgd on pixels, 100 rounds) and on the table adult (additive, as planned), and hold out a
share of 0.2 of their records by a public rule. Five evaluations are paid. The last model is measured on the held-out
records exactly, and DRAWS times with the noise of one of the five evaluations: in a secure sum with one colluder, of
which one site may be missing, and with noise at every site. Of every measure the file has the value without noise,
mean and standard deviation of the private estimates, their stated standard error of the noise, and how often 1.96 of
these cover the value. AUROC and calibration error without noise are those of `taciturn evaluate`, from the
probabilities themselves; the calibration error there has ten bins of equal width, and other bins than the private one.
Training noise comes from the operating system, so another start gives other models. Writes
benchmarks/results/private_evaluation_accuracy.json.

Takes five minutes on two cores.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.program import ROOT, arguments, rounded, write_results

from taciturn.algorithms.measure_release import MeasureRelease
from taciturn.core.arrays import to_numpy
from taciturn.data import data_folder
from taciturn.federation.agreement import derive_agreement, published_shards
from taciturn.federation.terms import read_terms
from taciturn.objectives import LOSSES
from taciturn.objectives.passes import scores
from taciturn.planning.plan import load_data, plan_study
from taciturn.planning.study import Study
from taciturn.privacy.noise import SeededNoise
from taciturn.runs.private_quality import Estimate, PrivateClassification
from taciturn.runs.quality import ClassificationQuality, measure_quality
from taciturn.settings import resolve
from taciturn.training.loop import first_state, training_rounds
from taciturn.training.private_evaluation import private_quality
from taciturn.types import Array, Shard, pool

SITES, SHARE, EVALUATIONS, DRAWS = 10, 0.2, 5, 300
EPSILONS = (0.5, 1.0, 3.0)
TRUST: dict[str, dict[str, Any]] = {
    "secure-sum": {"trust": "secure-sum", "colluders": 1, "missing": 1},
    "agents": {"trust": "agents"},
}
MEASURES = ("error", "log_loss", "auroc", "calibration_error", "baseline_error", "baseline_log_loss")


def mnist(trust: dict[str, Any], epsilon: float) -> Study:
    """Return a study of MNIST as a federation of ten sites has it."""
    sites = "\n".join(f"site-{p} = 6000" for p in range(SITES))
    given = {**trust, "total_epsilon": epsilon, "test_share": SHARE, "evaluations": EVALUATIONS, "rounds": 100}
    given |= {
        "data": "mnist",
        "features": "none",
        "algorithm": "dpgd",
        "total_records": 60_000,
        "partition": "shuffled",
    }
    lines = [f"{name} = {value!r}" for name, value in given.items()]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "federation.toml"
        text = "\n".join(
            ["protocol = 1", 'name = "mnist"', "[server]", 'host = "localhost"', "[sites]", sites, "[study]", *lines]
        )
        path.write_text(text.replace("'", '"') + "\n", encoding="utf-8")
        terms = read_terms(path)
        published = terms.load_published()
        if published is None:
            raise TypeError("MNIST is published")
        agreement = derive_agreement(terms, published)
        pairs = [published_shards(terms, published, site) for site in terms.agents]
    held_out = [other for _, other in pairs if other is not None]
    dataset = replace(
        published,
        agents=terms.agents,
        train=tuple(own for own, _ in pairs),
        test=pool(held_out),
        held_out=tuple(len(shard.x) for shard in held_out),
    )
    plan = agreement.study_plan
    return Study(plan.settings, dataset, plan.problem, plan.parts, plan.facts)


def adult(trust: dict[str, Any], epsilon: float) -> Study:
    """Return a study of the table adult, partitioned among ten agents."""
    given = {**trust, "total_epsilon": epsilon, "test_share": SHARE, "evaluations": EVALUATIONS, "noise": "hardened"}
    given |= {"data": str(data_folder() / "tables" / "adult.csv"), "total_records": 32_000, "agents": SITES}
    given |= {"schema": str(ROOT / "benchmarks" / "table_schemas" / "adult.toml")}
    return load_data(plan_study(resolve(given)), key=0)


DATA = {"mnist": mnist, "adult": adult}


def trained(study: Study) -> Array:
    """Return the last model of a study, [J, 1, K]."""
    (part,) = study.parts
    state = first_state(study, part, study.dataset.train, averages=False)
    *_, last = training_rounds(study, part, study.dataset.train, part.rounds, state)
    return to_numpy(last.w)


def known(study: Study, w: Array, exact: PrivateClassification) -> dict[str, float]:
    """Return the measures without noise; AUROC and calibration from the probabilities, not from bins."""
    test = study.dataset.test
    if test is None:
        raise TypeError("nothing is held out")
    found = measure_quality(scores(w, test.x)[:, 0], test.y, study.dataset.target, LOSSES[study.settings.loss]())
    if not isinstance(found, ClassificationQuality):
        raise TypeError("both data sets have classes")
    values = {name: getattr(exact, name) for name in MEASURES}
    own = {name: one.value for name, one in values.items() if isinstance(one, Estimate)}
    unbinned = {"auroc": found.auroc if "auroc" in own else None, "calibration_error": found.calibration_error}
    return own | {name: value for name, value in unbinned.items() if value is not None}


def drawn(
    study: Study, measure: MeasureRelease, exact: Array, shards: Sequence[Shard], w: Array, seed: int
) -> PrivateClassification:
    """Return the estimates from the exact sums with the noise of all sites."""
    total = exact.astype(np.int64)
    for p, shard in enumerate(shards):
        total = total + measure(w, shard.rows(slice(0)), SeededNoise((seed,), p, 1)).integers
    found = private_quality(measure, total, 0, len(shards), study.dataset.target)
    if not isinstance(found, PrivateClassification):
        raise TypeError("both data sets have classes")
    return found


def measured(data: str, trust: str, epsilon: float) -> dict[str, Any]:
    """Train, measure without noise, and with DRAWS draws of it."""
    study = DATA[data](TRUST[trust], epsilon)
    (part,), shards = study.parts, study.dataset.held_out_shards
    measure, plan = part.measure, part.plans[0].evaluation
    if measure is None or plan is None:
        raise TypeError("the study has evaluations")
    w = trained(study)
    exact = np.sum([measure.sums(w, shard) for shard in shards], axis=0)
    without = private_quality(replace(measure, events=(plan.event,), share=0.0), exact, 0, SITES, study.dataset.target)
    if not isinstance(without, PrivateClassification):
        raise TypeError("both data sets have classes")
    truth = known(study, w, without)
    estimates = [drawn(study, measure, exact, shards, w, seed) for seed in range(DRAWS)]
    row: dict[str, Any] = {
        "data": data,
        "trust": trust,
        "total_epsilon": epsilon,
        "held_out": int(without.records.value),
        "noise_of_a_count": measure.deviation(0, SITES),
        "noise_of_a_count_alone": measure.deviation(0, SITES) / measure.layout.length,
        "evaluation_epsilon": plan.bound.epsilon,
    }
    for name, value in truth.items():
        ones = [one for one in (getattr(found, name) for found in estimates) if one is not None]
        if not ones:
            continue
        values, noise = np.array([one.value for one in ones]), np.array([one.noise for one in ones])
        row[name] = {
            "without_noise": value,
            "mean": float(values.mean()),
            "deviation": float(values.std(ddof=1)),
            "stated_noise": float(noise.mean()),
            "stated_sampling": None if ones[0].sampling is None else float(np.mean([one.sampling for one in ones])),
            "covered": float((np.abs(values - value) <= 1.96 * noise).mean()),
            "known_in": len(ones),
        }
    print(row, flush=True)
    return row


def main() -> None:
    """Measure everything and write."""
    options = arguments(__doc__, "private_evaluation_accuracy").parse_args()
    rows = [measured(data, trust, epsilon) for data in DATA for trust in TRUST for epsilon in EPSILONS]
    what = {"what": __doc__.splitlines()[0] if __doc__ else "", "sites": SITES, "test_share": SHARE}
    document = {**what, "evaluations": EVALUATIONS, "draws": DRAWS, "rows": rounded(rows, 4)}
    write_results(options.out, document)


if __name__ == "__main__":
    main()
