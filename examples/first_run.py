"""Train a model across three clinics within a total epsilon, and print the result."""

import taciturn

run = taciturn.run(
    data="examples/clinics/records.csv",
    schema="examples/clinics/schema.toml",
    test_share=0.25,
    agents=3,
    total_records=400,
    total_epsilon=3,
)
spent = run.summary["privacy"]["total_epsilon"]
print(f"total epsilon {spent:.3g}, test error {run.test_error:.1%}, report {run.path / 'report.html'}")
