"""Every setting of a run: its name, its default, its rule and its help text, in one table."""

from tacit.settings.settings import Settings, resolve

__all__ = ["Settings", "resolve"]
