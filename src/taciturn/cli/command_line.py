"""The group of all commands, and what their errors print and return."""

from __future__ import annotations

import io
import logging
import platform
import sys
import time
import warnings
from typing import Any

import rich_click as click

from taciturn.cli.front_page import COMMANDS, HELP_FLAGS, VERBOSE, colored, front_page, help_text
from taciturn.cli.options import CommandsByName, SuggestingGroup
from taciturn.cli.output import configure_logging, note, stderr, stdout
from taciturn.errors import LedgerWarning, PrivacyViolation, TaciturnError
from taciturn.progress import subscribe
from taciturn.training.process_group import current_rank
from taciturn.training_display import StatusLine
from taciturn.version import VERSION

ERROR, VIOLATION = 2, 3  # exit codes
BUDGETS = "--total-epsilon is the budget of all rounds together, --epsilon that of one update in mode paper"
RANK_DELAY = 1.0  # seconds: torchrun ends all ranks when one fails, and the first needs time to print why

click.rich_click.SHOW_ARGUMENTS = True
click.rich_click.MAX_WIDTH = 110

logger = logging.getLogger(__name__)


class FrontPageGroup(SuggestingGroup):
    """The group of all commands, whose help is the first page."""

    def get_help(self, ctx: click.Context) -> str:
        """Return the first page."""
        return front_page(color=colored())


@click.group(cls=FrontPageGroup, help=help_text(), context_settings={"help_option_names": list(HELP_FLAGS)})
@click.version_option(VERSION, prog_name="taciturn")
@click.option("-v", "--verbose", count=True, metavar="", help=VERBOSE)
@click.pass_context
def cli(context: click.Context, verbose: int) -> None:
    """Log the start of a command."""
    configure_logging(verbose)
    command = context.invoked_subcommand  # not the arguments, which may contain a token
    logger.info("Taciturn %s, Python %s, command %s", VERSION, platform.python_version(), command)


# not in the constructor, which would import all of them
cli.commands = CommandsByName(
    {name: f"taciturn.{one.place}" for listed in COMMANDS.values() for name, one in listed.items()}
)


def run() -> None:
    """Run the command in `sys.argv` and exit.

    An error that the user can act on is printed as one sentence and exits with code 2, a privacy violation with 3.
    With -vv the traceback is printed, too.
    """
    stdout.quiet = stderr.quiet = current_rank() > 0  # only the first rank of a distributed run prints
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # as stderr: a locale without ε must not stop a command
    warnings.showwarning = _show_ledger_warning
    try:
        with subscribe(StatusLine(stderr)):
            outcome = cli(prog_name="taciturn", standalone_mode=False)
        _exit(outcome if isinstance(outcome, int) else 0)
    except click.NoSuchOption as error:
        takes = {word for one in error.ctx.command.params for word in one.opts} if error.ctx else set()
        budget = error.option_name in ("--eps", "--budget") and {"--total-epsilon", "--epsilon"} <= takes
        path = error.ctx.command_path if error.ctx else "taciturn"
        said = f"no such option '{error.option_name}': {BUDGETS}" if budget else _one_line(error.format_message())
        _fail(f"{said}; see '{path} --help'", error, collective=True)
    except click.ClickException as error:
        context = getattr(error, "ctx", None)
        path = context.command_path if context else "taciturn"
        _fail(f"{_one_line(error.format_message())}; see '{path} --help'", error, collective=True)
    except TaciturnError as error:
        _fail(str(error), error, collective=error.collective)
    except PrivacyViolation as violation:
        _fail(f"privacy violation: {violation}", violation, collective=True, code=VIOLATION)
    except (KeyboardInterrupt, click.Abort):
        note("stopped")
        _exit(130)
    except BrokenPipeError:
        raise  # an OSError, but not one to explain: the reader of the output has gone
    except MemoryError as error:
        _fail(f"out of memory ({error}); use --precision float32 or fewer --seeds", error)
    except OSError as error:
        place = f" {error.filename}" if error.filename else ""
        _fail(f"cannot read or write{place}: {error.strerror or error}", error)


_show_warning = warnings.showwarning


def _show_ledger_warning(message: Warning | str, category: type[Warning], *args: Any, **kwargs: Any) -> None:
    """Print a ledger warning as one sentence; show other warnings as usual."""
    if issubclass(category, LedgerWarning):
        note(f"note: {message}")
    else:
        _show_warning(message, category, *args, **kwargs)


def _one_line(message: str) -> str:
    """Return click's message as a part of a sentence."""
    text = " ".join(message.split()).rstrip(".")
    return text[:1].lower() + text[1:]


def _fail(sentence: str, error: BaseException, collective: bool = False, code: int = ERROR) -> None:
    """Print an error and exit; of an error that all ranks raise, only the first rank prints it."""
    logger.debug("the command failed", exc_info=error)
    rank = current_rank()
    if rank == 0 or not collective:
        click.echo(f"error: rank {rank}: {sentence}" if rank else f"error: {sentence}", err=True)
    _exit(code)


def _exit(code: int) -> None:
    if code and current_rank() > 0:
        time.sleep(RANK_DELAY)
    sys.exit(code)
