"""Other federated systems at the same task, run only where somebody installed them; nothing here needs them."""
