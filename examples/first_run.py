"""Train a model across four hospitals within a total epsilon, and print the result."""

import taciturn

run = taciturn.run(
    data="examples/heart/heart.csv",
    schema="examples/heart/schema.toml",
    test_share=0.25,
    total_records=700,
    total_epsilon=1,
)
spent = run.summary["privacy"]["total_epsilon"]
print(f"total epsilon {spent:.3g}, test error {run.test_error:.1%}, report {run.path / 'report.html'}")
