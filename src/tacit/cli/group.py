"""A group of commands that offers the nearest one when a name is misspelt."""

from __future__ import annotations

import rich_click as click

from tacit.errors import no_such


class NearestGroup(click.RichGroup):
    """Like click's group, with our sentence for an unknown command."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command that the first word names."""
        if args and not args[0].startswith("-") and self.get_command(ctx, args[0]) is None:
            raise no_such("command", args[0], self.list_commands(ctx))
        return super().resolve_command(ctx, args)
