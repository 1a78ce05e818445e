"""Differential privacy: noise mechanisms, privacy events, accountants, and the ledger that adds them up."""
