"""Every setting of a run: its name, its default, its rule and its help text, in one table."""

from tacit.settings.resolve import resolve, resolve_given
from tacit.settings.settings import Settings

__all__ = ["Settings", "resolve", "resolve_given"]
