"""The run folder: written once, read anywhere."""
