"""`taciturn data`: what data there is, and getting it into shape."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import rich_click as click
from rich.progress import BarColumn, DownloadColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from taciturn.cli.options import NearestGroup
from taciturn.cli.output import print_json, stderr, stdout
from taciturn.core.storage import write_text
from taciturn.data import SOURCES, data_folder, describe, draft_schema, load_unmapped, read_table
from taciturn.data.feature_maps import MAPS, NONE
from taciturn.errors import InputError
from taciturn.settings import resolve
from taciturn.settings.resolve import allow_plugins, load_plugins


@click.group(cls=NearestGroup)
def data() -> None:
    """Data sets and tables."""


@data.command("list")
@click.option("--json", "as_json", is_flag=True, help="print one JSON object")
def list_sources(as_json: bool) -> None:
    """The data sets there are.

    \b
    Examples:
      taciturn data list
    """
    found = [(name, SOURCES[name]) for name in SOURCES]
    if as_json:
        facts = ("summary", "origin", "attribution")
        print_json({name: {fact: getattr(source, fact) for fact in facts} for name, source in found})
        return
    for name, source in found:
        stdout.print(f"[bold]{name:8}[/] {source.summary}", highlight=False, soft_wrap=True)
        for word, fact in (("from", source.origin), ("by", source.attribution)):
            stdout.print(f"         {word}: {fact}", highlight=False, soft_wrap=True)


@data.command()
@click.option("--plugins", multiple=True, metavar="FILE", help="a Python file that adds some of your own")
@click.option("--json", "as_json", is_flag=True, help="print one JSON object")
def maps(plugins: tuple[str, ...], as_json: bool) -> None:
    """The public feature maps there are: what --features makes of every record by itself, before training.

    \b
    Examples:
      taciturn data maps
      taciturn run --features pixels
    """
    allow_plugins({"plugins": plugins})
    load_plugins(plugins)
    found = {NONE: "records as they are, features in [-1, 1]"}
    for name in MAPS:
        found[name] = MAPS[name].summary + ("; for square images" if MAPS[name].images else "")
    if as_json:
        print_json(found)
        return
    wide = max(map(len, found)) + 2
    for name, summary in found.items():
        stdout.print(f"[bold]{name:{wide}}[/]{summary}", highlight=False, soft_wrap=True)


@data.command()
@click.argument("name")
@click.option(
    "--data-dir", default="", help="folder to put it into [default: $TACITURN_DATA, else the user's cache folder]"
)
@click.option("--source", default="", help="a mirror of your own: a URL or a folder that holds the files")
def fetch(name: str, data_dir: str, source: str) -> None:
    """Download a data set; a broken download goes on where it stopped.

    \b
    Examples:
      taciturn data fetch mnist
      taciturn data fetch mnist --source https://mirror.example/mnist
    """
    chosen = SOURCES[name]
    if chosen.fetch is None:
        raise InputError(f"{name} is not fetched; it comes from: {chosen.origin}")
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with Progress(*columns, console=stderr) as bars:
        tasks: dict[str, TaskID] = {}

        def progress(file: str, done: int, total: int | None) -> None:
            if file not in tasks:
                tasks[file] = bars.add_task(file, total=total)
            bars.update(tasks[file], completed=done, total=total)

        files = chosen.fetch(data_folder(data_dir) / name, source, progress)
    for file in files:
        stdout.print(str(file), soft_wrap=True, highlight=False)


@data.command()
@click.argument("name")
@click.option("--schema", default="", help="schema file of a table")
@click.option("--data-dir", default="", help="folder the data sets lie in")
@click.option("--agents", default=None, help="number of agents, where the data set leaves it open")
@click.option("--partition", default=None, help="how records are dealt to agents")
@click.option("--json", "as_json", is_flag=True, help="print one JSON object")
def info(name: str, as_json: bool, **given: Any) -> None:
    """A data set or table in numbers: records, agents, features (before a feature map), classes.

    \b
    Examples:
      taciturn data info mnist14 --agents 5 --partition dirichlet
      taciturn data info patients.csv --schema schema.toml
    """
    chosen = {key: value for key, value in given.items() if value not in (None, "")}
    options = resolve({"data": name, **chosen}).data_options()
    facts = describe(load_unmapped(options)) | ({} if options.features == NONE else {"feature_map": options.features})
    if as_json:
        print_json(facts)
        return
    for key, value in facts.items():
        if value in ({}, []):
            continue
        stdout.print(f"[bold]{key.replace('_', ' '):13}[/] {_fact(value)}", highlight=False, soft_wrap=True)


def _fact(value: object) -> str:
    if isinstance(value, dict):
        shown = [f"{key}: {count:,}" for key, count in list(value.items())[:20]]
        return "  ".join(shown) + (f"  … {len(value)} in all" if len(value) > 20 else "")
    if isinstance(value, list):
        return "\n              ".join(str(item) for item in value)
    return f"{value:,}" if isinstance(value, int) else f"{value:.3g}" if isinstance(value, float) else str(value)


@data.command()
@click.argument("table", type=click.Path(path_type=Path))
@click.option("--label", required=True, help="the column to predict")
@click.option("--agent", default="", help="the column that says whose record it is")
@click.option("--out", type=click.Path(path_type=Path), help="the schema file to write; default: stdout")
def schema(table: Path, label: str, agent: str, out: Path | None) -> None:
    """Draft the schema file of a table, for its owner to correct.

    \b
    Examples:
      taciturn data schema patients.csv --label diagnosis --agent hospital --out schema.toml
    """
    text = draft_schema(read_table(table), label, agent or None)
    if out is None:
        click.echo(text, nl=False)
        return
    if out.exists():
        raise InputError(f"{out} exists: choose another name")
    write_text(out, text)
    for line in text.splitlines():
        if line.startswith("# column '") and "is left out" in line:
            stderr.print(f"note: {line.removeprefix('# ')}", soft_wrap=True, highlight=False)
    stderr.print(
        f"{out}: bounds and categories were read off the data, which is not private; "
        "replace them by what is known without looking.",
        soft_wrap=True,
        highlight=False,
    )
