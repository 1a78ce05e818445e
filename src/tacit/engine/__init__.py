"""Where it runs: the simulation in one process, its evaluation and its checkpoints."""
