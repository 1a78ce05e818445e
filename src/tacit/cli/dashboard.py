"""`tacit dashboard`: runs in a browser."""

from __future__ import annotations

import os
import sys
import webbrowser
from pathlib import Path

import rich_click as click

from tacit.cli.output import stderr, stdout
from tacit.settings.rules import integer


@click.command()
@click.argument("runs", default="runs", type=click.Path(path_type=Path))
@click.option("--port", metavar="NUMBER", help="where to listen [default: 8321, or a free one where that is taken]")
@click.option("--host", default="127.0.0.1", show_default=True, help="the address to listen at")
@click.option("--open/--no-open", "opened", default=None, help="open a browser [default: where there is a display]")
@click.option(
    "--token", metavar="TEXT", help="ask visitors for this [default: a random one if the host is not loopback]"
)
@click.option(
    "--with-local", is_flag=True, help="show what was computed without noise on a host that is not loopback too"
)
def dashboard(
    runs: Path, port: str | None, host: str, opened: bool | None, token: str | None, with_local: bool
) -> None:
    """Show the runs in a folder on a page in the browser: curves while they grow, budgets, settings, ledgers.

    RUNS is a folder that holds run folders at any depth, or a run folder. Nothing is written there, and nothing is
    asked of any other machine. Ctrl-C ends it.

    \b
    Examples:
      tacit dashboard
      tacit dashboard runs/sweep --port 9000
      tacit dashboard --host 0.0.0.0
    """
    from tacit.dashboard.serve import bind  # noqa: PLC0415  it needs a server, which no other command does

    made = bind(runs, host, None if port is None else integer(0, 65535)("port", port), token, with_local)
    if made.token:
        stderr.print("note: what the browser and this machine tell each other is not encrypted", soft_wrap=True)
    stdout.print(f"{made.address}  (Ctrl-C ends it)", soft_wrap=True, highlight=False)
    sys.stdout.flush()
    if opened or (opened is None and _has_display()):
        webbrowser.open(made.address)
    made.serve()
    stderr.print("stopped")


def _has_display() -> bool:
    """Whether somebody sits at this machine."""
    shown = sys.platform == "darwin" or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
    return shown and sys.stdout.isatty()
