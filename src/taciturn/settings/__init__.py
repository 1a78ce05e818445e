"""All settings of a run: names, defaults, rules and help texts in one table, and the checks of their combinations."""

from taciturn.settings.resolve import resolve, resolve_given
from taciturn.settings.settings import Settings

__all__ = ["Settings", "resolve", "resolve_given"]
