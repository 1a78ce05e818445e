"""Privacy audits: a game against the code that makes releases, and the epsilon that winning it proves."""

from tacit.audit.game import Claim, Game, games
from tacit.audit.run import Audit, audit, audit_games

__all__ = ["Audit", "Claim", "Game", "audit", "audit_games", "games"]
