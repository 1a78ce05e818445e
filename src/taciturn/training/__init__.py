"""Training in one process or several, with metrics, ledger and checkpoints."""
