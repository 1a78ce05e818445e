"""The command line: thin, over the same functions Python has."""

from __future__ import annotations

import importlib
import os
import sys
import time
import warnings
from typing import Any

import rich_click as click

from taciturn.cli.audit_command import audit
from taciturn.cli.catalog_commands import algorithms, completion, config, doctor
from taciturn.cli.data_commands import data
from taciturn.cli.federation_commands import federation
from taciturn.cli.inspect_commands import compare, dashboard, plot, report, show
from taciturn.cli.ledger_commands import ledger
from taciturn.cli.model_commands import evaluate, export, predict
from taciturn.cli.options import NearestGroup
from taciturn.cli.output import stderr, stdout
from taciturn.cli.plan_command import plan
from taciturn.cli.progress_display import StatusLine
from taciturn.cli.run_commands import resume, train
from taciturn.cli.signature_commands import countersign, key, machine, request, sign, verify
from taciturn.cli.sweep_commands import frontier, sweep
from taciturn.errors import LedgerWarning, PrivacyViolation, TaciturnError
from taciturn.progress import subscribe
from taciturn.training.process_group import current_rank
from taciturn.version import VERSION

WRONG, VIOLATION = 2, 3  # exit codes: what was given or asked for is wrong; more was released than any plan covers
LAST_WORDS = 1.0  # seconds: torchrun ends all ranks when one ends badly, and the first has to say why

click.rich_click.SHOW_ARGUMENTS = True
click.rich_click.MAX_WIDTH = 110


@click.group(cls=NearestGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(VERSION, prog_name="taciturn")
def cli() -> None:
    """Train one model among parties that never show each other their data.

    \b
    Examples:
      taciturn run                         train on embedded data, with a total epsilon of 1
      taciturn plan --total-epsilon 3      what a budget buys, before it is spent
      taciturn run --total-epsilon 3       train within it
      taciturn dashboard                   watch runs in a browser
      taciturn ledger runs/a               what a run spent
      taciturn federation demo             sites on their own, over a network
      taciturn doctor                      what is installed, and where data lies

    \b
    Exit codes:
      0    done
      1    the answer is no: a claim is refuted, something must be mended, a ledger is not at its end
      2    something given is wrong, or cannot be done; a sentence says what
      3    privacy violation: all stops, and nothing of the run may be shown
      130  stopped by Ctrl-C or a signal
    """


RESEARCH = importlib.import_module("taciturn.research.commands")  # by name: no module of the core imports research
COMMANDS: dict[str, tuple[click.Command, ...]] = {
    "Train": (plan, frontier, train, resume, sweep),
    "Look at runs": (show, compare, plot, report, dashboard),
    "Privacy": (ledger, audit),
    "Use a model": (predict, evaluate, export),
    "Train over a network": (federation,),
    "Data and settings": (data, algorithms, config),
    "Research": RESEARCH.COMMANDS,
    "This installation": (doctor, completion),
}
for commands in COMMANDS.values():
    for command in commands:
        cli.add_command(command)
for command in (key, machine, request, sign, verify, countersign):
    ledger.add_command(command)
click.rich_click.COMMAND_GROUPS = {
    "taciturn": [
        {"name": name, "commands": [str(command.name) for command in commands]} for name, commands in COMMANDS.items()
    ]
}


def run() -> None:
    """Run a command; what the user got wrong ends with one sentence and exit code 2, a privacy violation with 3."""
    stdout.quiet = stderr.quiet = current_rank() > 0  # of the ranks of a run, the first speaks
    warnings.showwarning = _warned
    try:
        with subscribe(StatusLine(stderr)):
            outcome = cli(prog_name="taciturn", standalone_mode=False)
        _leave(outcome if isinstance(outcome, int) else 0)
    except click.ClickException as error:
        _fail(f"{_one_line(error.format_message())}; see '{_help_of(error)}'", everywhere=True)
    except TaciturnError as error:
        _fail(str(error), everywhere=error.collective)
    except PrivacyViolation as violation:
        _fail(f"privacy violation: {violation}", everywhere=True, code=VIOLATION)
    except (KeyboardInterrupt, click.Abort):
        stderr.print("stopped")
        _leave(130)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # so that the interpreter's last flush is quiet
        sys.exit(141)
    except MemoryError as error:
        _fail(f"out of memory ({error}): use --precision float32, fewer --seeds or --no-averages")
    except OSError as error:
        _fail(f"cannot read or write{f' {error.filename}' if error.filename else ''}: {error.strerror or error}")


_show_warning = warnings.showwarning


def _warned(message: Warning | str, category: type[Warning], *place: Any, **more: Any) -> None:
    """A warning that is meant for users, as a sentence of ours; the others as usual."""
    if issubclass(category, LedgerWarning):
        stderr.print(f"note: {message}", soft_wrap=True, highlight=False)
    else:
        _show_warning(message, category, *place, **more)


def _one_line(message: str) -> str:
    """Click's message as part of one of our sentences."""
    text = " ".join(message.split()).rstrip(".")
    return text[:1].lower() + text[1:]


def _help_of(error: click.ClickException) -> str:
    context = getattr(error, "ctx", None)
    return f"{context.command_path if context else 'taciturn'} --help"


def _fail(sentence: str, everywhere: bool = False, code: int = WRONG) -> None:
    """Say it and end; a rank of a run says only what the first does not."""
    rank = current_rank()
    if rank == 0 or not everywhere:
        click.echo(f"error: rank {rank}: {sentence}" if rank else f"error: {sentence}", err=True)
    _leave(code)


def _leave(code: int) -> None:
    """End with this exit code."""
    if code and current_rank() > 0:
        time.sleep(LAST_WORDS)
    sys.exit(code)
