"""`taciturn data`: list, download and describe data sets, and draft the schema of a table."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import rich_click as click
from rich.progress import BarColumn, DownloadColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from taciturn.cli.options import SuggestingGroup
from taciturn.cli.output import JSON, PATH, check_new, note, print_fields, print_json, say, stderr
from taciturn.core.storage import format_bytes, write_text
from taciturn.data import SOURCES, data_folder, describe, draft_schema, feature_cache, load_unmapped, read_table
from taciturn.data.feature_maps import MAPS, NONE
from taciturn.errors import InputError
from taciturn.settings import resolve
from taciturn.settings.resolve import allow_plugins, load_plugins

MAX_COUNTS = 20  # entries of a mapping that are shown


@click.group(cls=SuggestingGroup)
def data() -> None:
    """List, download and describe data sets and tables."""


@data.command("list")
@JSON
def list_sources(as_json: bool) -> None:
    """List the data sets.

    \b
    Examples:
      taciturn data list
    """
    found = {name: SOURCES[name] for name in SOURCES}
    if as_json:
        facts = ("summary", "origin", "attribution")
        print_json({name: {fact: getattr(source, fact) for fact in facts} for name, source in found.items()})
        return
    for name, source in found.items():
        print_fields({name: source.summary}, 8)
        say(f"         from: {source.origin}")
        say(f"         by: {source.attribution}")


@data.command()
@click.option("--plugins", multiple=True, metavar="FILE", help="a Python file that registers more feature maps")
@JSON
def maps(plugins: tuple[str, ...], as_json: bool) -> None:
    """List the public feature maps, which --features applies to every record before training.

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
    else:
        print_fields(found, max(map(len, found)) + 1)


@data.command()
@click.argument("name")
@click.option("--data-dir", default="", help="folder to write to [default: $TACITURN_DATA, else the user's cache]")
@click.option("--source", default="", help="your own mirror: a URL or a folder that holds the files")
def fetch(name: str, data_dir: str, source: str) -> None:
    """Download a data set; an interrupted download continues where it stopped.

    \b
    Examples:
      taciturn data fetch mnist
      taciturn data fetch mnist --source https://mirror.example/mnist
    """
    chosen = SOURCES[name]
    if chosen.fetch is None:
        raise InputError(f"{name} cannot be fetched: {chosen.origin}")
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with Progress(*columns, console=stderr) as bars:
        tasks: dict[str, TaskID] = {}

        def progress(file: str, done: int, total: int | None) -> None:
            if file not in tasks:
                tasks[file] = bars.add_task(file, total=total)
            bars.update(tasks[file], completed=done, total=total)

        files = chosen.fetch(data_folder(data_dir) / name, source, progress)
    for file in files:
        say(str(file))


@data.command()
@click.argument("name")
@click.option("--schema", default="", help="schema file of a table")
@click.option("--data-dir", default="", help="folder of the data sets")
@click.option("--agents", default=None, help="number of agents, if the data set does not fix it")
@click.option("--partition", default=None, help="in-order, shuffled, hashed, dirichlet or column")
@JSON
def info(name: str, as_json: bool, **given: Any) -> None:
    """Describe a data set or table: records, agents, features (before a feature map) and classes.

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
    shown = {key: value for key, value in facts.items() if value not in ({}, [])}
    print_fields({key.replace("_", " "): _format_fact(value) for key, value in shown.items()}, 13)


def _format_fact(value: object) -> str:
    if isinstance(value, dict):
        shown = [f"{key}: {count:,}" for key, count in list(value.items())[:MAX_COUNTS]]
        return "  ".join(shown) + (f"  … {len(value)} in all" if len(value) > MAX_COUNTS else "")
    if isinstance(value, list) and len(value) == 2 and all(isinstance(item, float) for item in value):
        return f"{value[0]:g} to {value[1]:g}"
    if isinstance(value, list):
        return "\n              ".join(str(item) for item in value)
    return f"{value:,}" if isinstance(value, int) else f"{value:.3g}" if isinstance(value, float) else str(value)


@data.command("clear-cache")
def clear_cache() -> None:
    """Remove the cached features of published data sets; the next run computes them again.

    The cache is the folder features in the user's cache folder. TACITURN_FEATURE_CACHE limits its size (default: 2GB;
    off: no cache).

    \b
    Examples:
      taciturn data clear-cache
    """
    size = feature_cache.clear()
    say(f"{format_bytes(size)} removed from {feature_cache.folder()}" if size else f"{feature_cache.folder()} is empty")


@data.command()
@click.argument("table", type=PATH)
@click.option("--label", required=True, help="the column to predict")
@click.option("--agent", default="", help="the column that names the agent of a record")
@click.option("--out", type=PATH, help="the schema file to write; default: stdout")
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
    check_new(out)
    write_text(out, text)
    for line in text.splitlines():
        if line.startswith("# column '") and "is left out" in line:
            note(f"note: {line.removeprefix('# ')}")
    note(
        f"{out}: bounds and categories were read from the data, which is not private; replace them by what is known "
        "without looking at the data"
    )
