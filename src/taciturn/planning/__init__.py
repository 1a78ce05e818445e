"""From settings and public facts to a plan: rounds, clipping, step sizes and noise, before any record is read."""
