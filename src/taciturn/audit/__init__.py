"""Privacy audits: a distinguishing game against the releasing code, and the epsilon that winning it proves."""

from taciturn.audit.auditor import Audit, audit, audit_games
from taciturn.audit.games import Claim, Game, games

__all__ = ["Audit", "Claim", "Game", "audit", "audit_games", "games"]
