"""What is promised: mechanisms, the events they stand for, the ledger that adds them up."""
