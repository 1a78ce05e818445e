"""The layout of the package: unique names, bounded size, a research leaf, and examples that run."""

from __future__ import annotations

import ast
import doctest
import importlib
import inspect
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

import taciturn
import taciturn.sklearn
from taciturn.algorithms import ALGORITHMS
from taciturn.data import SOURCES
from tests.cli.helpers import ROOT

PACKAGE = ROOT / "src" / "taciturn"
MODULES = sorted(path for path in PACKAGE.rglob("*.py") if path.name != "__init__.py")
CORE = [path for path in sorted(PACKAGE.rglob("*.py")) if "research" not in path.relative_to(PACKAGE).parts]
WITH_EXAMPLES = [
    path for path in sorted(PACKAGE.rglob("*.py")) if re.search(r">>> (?!.*doctest: \+SKIP)", path.read_text())
]
TEXTS = [  # pages of the documentation, and texts of the package that are no modules
    ROOT / "README.md",
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted(
        path for path in PACKAGE.rglob("*") if path.suffix in {".html", ".js", ".toml"} and "vendor" not in path.parts
    ),
]
ARCHAIC = re.compile(
    r"\b(whoever|whomsoever|heeds?|heeded|the house|made anew|comes to nothing|is no longer told|goes round"
    r"|came at once|answers? (no|nothing) more|comes? on top|squares add up|for ever|written nowhere|became of"
    r"|what becomes of|what tells|sign of life|in the making|cannot go on|so it does(?! not)|so they do(?! not)"
    r"|spent at most by|signature is false|no game of its own|asked again in another|somebody|columns? of texts"
    r"|columns? of numbers|speaks? (for|against) (the|it|disease)|of Δ too much|people of this site|change no bit"
    r"|(is|are) no (row|class|frame|mapping)s?|sites have signed this set)\b",
    re.I,
)

BORDERS = {  # modules whose functions may take or return a mapping with values of type Any, and why
    "cli/options.py": "click's flags",
    "data/facts.py": "keywords of two records",
    "data/schema_parser.py": "a TOML file",
    "federation/nvflare/cell.py": "NVFlare has no types",
    "federation/toml_sections.py": "a TOML file",
    "privacy/events.py": "lines of a hash chain",
    "reporting/figures/run_figure.py": "keywords of matplotlib",
    "reporting/figures/style.py": "keywords of matplotlib",
    "runs/folder.py": "JSON and TOML files",
    "runs/metrics_log.py": "JSON lines of a file",
    "runs/model.py": "rows of a table, whose columns the user names",
    "secure_sum/sum_wire.py": "JSON headers of messages",
    "settings/resolve.py": "the conversion of given values to settings",
}


def test_no_two_modules_share_a_name() -> None:
    names = Counter(path.stem for path in MODULES if path.stem != "__main__")
    assert [name for name, count in names.items() if count > 1] == []


def test_no_two_public_classes_share_a_name() -> None:
    names = Counter(
        node.name
        for path in MODULES
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    )
    assert [name for name, count in names.items() if count > 1] == []


def test_the_core_stays_small_enough_to_read() -> None:
    assert len([path for path in CORE if path.name != "__init__.py"]) <= 266


def test_untyped_mappings_cross_functions_only_at_borders() -> None:
    found = {str(path.relative_to(PACKAGE)) for path in CORE if any(_untyped_mappings(ast.parse(path.read_text())))}
    assert found == BORDERS.keys()


def _untyped_mappings(tree: ast.Module) -> Iterator[ast.Subscript]:
    """Yield each `dict[str, Any]` or `Mapping[str, Any]` in an argument, a result, a field or an alias."""
    annotations: list[ast.expr | None] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            given = node.args
            annotations += [one.annotation for one in (*given.posonlyargs, *given.args, *given.kwonlyargs)]
            annotations.append(node.returns)
        if isinstance(node, ast.Module | ast.ClassDef):  # variables of a function do not leave it
            declared = [one for one in node.body if isinstance(one, ast.AnnAssign)]
            annotations += [part for one in declared for part in (one.annotation, one.value)]
            annotations += node.bases if isinstance(node, ast.ClassDef) else []
    for annotation in filter(None, annotations):
        for part in ast.walk(annotation):
            if isinstance(part, ast.Subscript) and re.fullmatch(r"(dict|\w*Mapping)\[str, Any\]", ast.unparse(part)):
                yield part


@pytest.mark.parametrize("package", ["reporting", "dashboard"])
def test_reports_and_dashboard_name_no_algorithm_and_no_data_set(package: str) -> None:
    # Words that are also plain English or a file format are left out.
    names = {*ALGORITHMS, *SOURCES} - {"hidden", "table"}
    pattern = re.compile(rf"\b({'|'.join(map(re.escape, sorted(names)))})\b")
    for path in [*(PACKAGE / package).rglob("*.py"), *(PACKAGE / package).rglob("*.js")]:
        if "vendor" not in path.parts:
            code = "\n".join(_code_lines(path))
            assert not pattern.findall(code), path


@pytest.mark.parametrize("path", [*CORE, *TEXTS], ids=lambda path: str(path.relative_to(ROOT)))
def test_the_text_is_plain_english(path: Path) -> None:
    assert ARCHAIC.findall(path.read_text()) == []


@pytest.mark.parametrize("path", WITH_EXAMPLES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_examples_in_docstrings_run(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    module = importlib.import_module(".".join(parts[:-1] if parts[-1] == "__init__" else parts))
    result = doctest.testmod(module, optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
    assert result.attempted > 0 and result.failed == 0


def test_public_functions_document_parameters_results_errors_and_an_example() -> None:
    for module in (taciturn, taciturn.sklearn):
        for name in module.__all__:
            found = getattr(module, name)
            if inspect.isfunction(found):
                text = inspect.getdoc(found) or ""
                missing = [part for part in ("Parameters\n", "Returns\n", "Raises\n", ">>> ") if part not in text]
                assert missing == [], f"{name} lacks {missing}"


def test_public_methods_document_parameters_results_errors_and_an_example() -> None:
    """Those of the classes that users make or get; properties say what they are in a sentence."""
    seen = 0
    for module in (taciturn, taciturn.sklearn):
        for kind in filter(inspect.isclass, (getattr(module, name) for name in module.__all__)):
            for name in (name for name in vars(kind) if not name.startswith("_")):
                found = getattr(kind, name)
                if not (inspect.isfunction(found) or inspect.ismethod(found)) or "taciturn" not in found.__module__:
                    continue
                seen += 1
                text, code, takes = inspect.getdoc(found) or "", inspect.getsource(found), inspect.signature(found)
                slow = kind in (taciturn.Frontier, taciturn.Sweep)  # the functions that return them have examples
                wanted = [] if slow else [">>> "]
                wanted += ["Parameters\n"] if set(takes.parameters) - {"self"} else []
                wanted += ["Returns\n"] if takes.return_annotation != "None" else []
                wanted += ["Raises\n"] if re.search(r"^ +raise ", code, re.MULTILINE) else []
                missing = [part for part in wanted if part not in text]
                assert missing == [], f"{kind.__name__}.{name} lacks {missing}"
    assert seen > 20


def _code_lines(path: Path) -> Iterator[str]:
    """Yield the lines of a file without comments and docstrings."""
    text = path.read_text()
    if path.suffix == ".js":
        yield from (line.split("//")[0] for line in re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL).splitlines())
        return
    skipped: set[int] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(node) is not None:
            skipped.update(range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1))
    for number, line in enumerate(text.splitlines(), start=1):
        if number not in skipped:
            yield line.split("  #")[0]
