"""Train among three clinics from Python, and look at the result."""

import tacit

run = tacit.run(
    data="examples/clinics/records.csv",
    schema="examples/clinics/schema.toml",
    test_share=0.25,
    mode="paper",
    epsilon=1,
    rounds=50,
)
print(f"test error {run.test_error:.1%}, weights {run.w.shape}, report {run.path / 'report.html'}")
