"""Every setting of a run: its name, its default, its rule and its help text, in one table."""

from taciturn.settings.resolve import resolve, resolve_given
from taciturn.settings.settings import Settings

__all__ = ["Settings", "resolve", "resolve_given"]
