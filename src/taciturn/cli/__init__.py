"""The command line: commands that call the functions of the Python package and print what they return."""

from __future__ import annotations

import logging
import os
import platform
import sys
import time
import warnings
from typing import Any

import rich_click as click

from taciturn.cli.options import CommandsByName, SuggestingGroup
from taciturn.cli.output import configure_logging, note, stderr, stdout
from taciturn.errors import LedgerWarning, PrivacyViolation, TaciturnError
from taciturn.progress import subscribe
from taciturn.training.process_group import current_rank
from taciturn.training_display import StatusLine
from taciturn.version import VERSION

ERROR, VIOLATION = 2, 3  # exit codes
RANK_DELAY = 1.0  # seconds: torchrun ends all ranks when one fails, and the first needs time to print why

click.rich_click.SHOW_ARGUMENTS = True
click.rich_click.MAX_WIDTH = 110

_log = logging.getLogger(__name__)


COMMANDS: dict[str, dict[str, str]] = {
    "Train": {
        "plan": "taciturn.cli.plan_command:plan",
        "frontier": "taciturn.cli.experiment_commands:frontier",
        "run": "taciturn.cli.run_commands:train",
        "resume": "taciturn.cli.run_commands:resume",
        "sweep": "taciturn.cli.experiment_commands:sweep",
    },
    "Inspect runs": {
        name: f"taciturn.cli.inspect_commands:{name}"
        for name in ("show", "compare", "plot", "effects", "report", "dashboard")
    },
    "Privacy": {"ledger": "taciturn.cli.signature_commands:ledger", "audit": "taciturn.cli.audit_command:audit"},
    "Use a model": {name: f"taciturn.cli.model_commands:{name}" for name in ("predict", "evaluate", "export")},
    "Train over a network": {"federation": "taciturn.cli.federation_commands:federation"},
    "Data and settings": {
        "data": "taciturn.cli.data_commands:data",
        "algorithms": "taciturn.cli.catalog_commands:algorithms",
        "config": "taciturn.cli.catalog_commands:config",
    },
    "Research": {name: f"taciturn.research.commands:{name}" for name in ("reproduce", "theory", "bench")},
    "Installation": {name: f"taciturn.cli.catalog_commands:{name}" for name in ("doctor", "completion")},
}
"""The commands below their headings, and where each of them is: it is imported when it is used."""

click.rich_click.COMMAND_GROUPS = {
    "taciturn": [{"name": heading, "commands": list(places)} for heading, places in COMMANDS.items()]
}


@click.group(cls=SuggestingGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(VERSION, prog_name="taciturn")
@click.option("-v", "--verbose", count=True, metavar="", help="log to stderr; -vv adds debugging output and tracebacks")
@click.pass_context
def cli(context: click.Context, verbose: int) -> None:
    """Train one model on the data of several parties that do not share their records.

    \b
    Examples:
      taciturn run                         train on embedded data with a total epsilon of 1
      taciturn plan --total-epsilon 3      show what a budget buys before spending it
      taciturn run --total-epsilon 3       train with it
      taciturn -v run                      train and log every step to stderr
      taciturn dashboard                   watch runs in a browser
      taciturn ledger runs/a               show what a run spent
      taciturn federation demo             train over a network, all on this machine
      taciturn doctor                      check the installation

    \b
    Exit codes:
      0    success
      1    the check failed: a claim is refuted, the installation is broken, a ledger is not complete
      2    an input is wrong or the command failed; one sentence on stderr says why
      3    privacy violation: nothing of the run may be published
      130  stopped by Ctrl-C or a signal
    """
    configure_logging(verbose)
    command = context.invoked_subcommand  # not the arguments, which may contain a token
    _log.info("Taciturn %s, Python %s, command %s", VERSION, platform.python_version(), command)


# not in the constructor, which would import all of them
cli.commands = CommandsByName({name: place for places in COMMANDS.values() for name, place in places.items()})


def run() -> None:
    """Run the command in `sys.argv` and exit.

    An error that the user can act on is printed as one sentence and exits with code 2, a privacy violation with 3.
    With -vv the traceback is printed, too.
    """
    stdout.quiet = stderr.quiet = current_rank() > 0  # only the first rank of a distributed run prints
    warnings.showwarning = _show_ledger_warning
    try:
        with subscribe(StatusLine(stderr)):
            outcome = cli(prog_name="taciturn", standalone_mode=False)
        _exit(outcome if isinstance(outcome, int) else 0)
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
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # the interpreter's last flush must not fail
        sys.exit(141)
    except MemoryError as error:
        _fail(f"out of memory ({error}); use --precision float32, fewer --seeds or --no-averages", error)
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
    _log.debug("the command failed", exc_info=error)
    rank = current_rank()
    if rank == 0 or not collective:
        click.echo(f"error: rank {rank}: {sentence}" if rank else f"error: {sentence}", err=True)
    _exit(code)


def _exit(code: int) -> None:
    if code and current_rank() > 0:
        time.sleep(RANK_DELAY)
    sys.exit(code)
