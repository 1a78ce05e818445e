"""The run folder, its typed records, and models read from it."""
