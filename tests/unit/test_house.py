"""The rules of the house, as far as a program can check them."""

from __future__ import annotations

import ast
import gc
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from statistics import median
from typing import Any

import hypothesis
import pytest

import tilewright
from tilewright.kernels import registry
from tilewright.kernels.base import OtherBuilder

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = Path(tilewright.__file__).parent
SOURCES = sorted(PACKAGE.rglob("*.py"))
EVERYTHING = [
    *SOURCES,
    *sorted((ROOT / "tests").rglob("*.py")),
    *sorted((ROOT / "benchmarks").rglob("*.py")),
]

BUDGET = ROOT / "docs" / "decisions" / "0049-a-budget-of-statements.md"
LONGEST_FILE, LARGEST_MEDIAN = 500, 150
BUILT_BY_TVM = ("llvm", "cuda")
MOST_FACADE_FILES, MOST_FACADE_LINES = 8, 1140
LONGEST_FUNCTION, MOST_PARAMETERS = 60, 6
CATCHES_ALL = {
    "cli/main.py",
    "core/child.py",
    "models/exported/exporter.py",
    "compiler/remote.py",
    "measure/remote_worker.py",
}
"""The outermost frame of the command line, the borders of processes that work for it, among them
the one that runs the code of others to export it, and that of a remote device: all turn
whatever went wrong into an answer, and say so where they do it."""
HEAVY = (
    *("tvm", "tvm_ffi", "onnx", "onnxruntime", "polars", "plotly", "scipy", "sqlalchemy"),
    *("torch", "xgboost", "sklearn", "vl_convert", "ortools"),
)

ENVIRONMENT = ("environ", "environb", "getenv")

Function = ast.FunctionDef | ast.AsyncFunctionDef


@cache
def tree_of(path: Path) -> ast.Module:
    """A file's syntax tree."""
    return ast.parse(path.read_text(), filename=str(path))


@cache
def nodes_of(path: Path) -> dict[type[ast.AST], list[Any]]:
    """All nodes of a file by their kind."""
    found: dict[type[ast.AST], list[Any]] = {}
    for node in ast.walk(tree_of(path)):
        found.setdefault(type(node), []).append(node)
    return found


@pytest.fixture(autouse=True, scope="module")
def trees_given_back() -> Iterator[None]:
    """Millions of nodes, which the garbage collector need not look at, here and in all tests that
    follow."""
    gc.disable()
    yield
    tree_of.cache_clear()
    nodes_of.cache_clear()
    gc.enable()


def _name(path: Path) -> str:
    base = PACKAGE if path.is_relative_to(PACKAGE) else ROOT
    return path.relative_to(base).as_posix()


def _nodes(path: Path, *kinds: type[ast.AST]) -> Iterator[Any]:
    return (node for kind in kinds for node in nodes_of(path).get(kind, ()))


def _functions(path: Path) -> Iterator[Function]:
    return _nodes(path, ast.FunctionDef, ast.AsyncFunctionDef)


def test_files_are_short() -> None:
    lengths = {_name(path): len(path.read_text().splitlines()) for path in EVERYTHING}
    too_long = {name: length for name, length in lengths.items() if length > LONGEST_FILE}
    assert not too_long
    assert median(len(path.read_text().splitlines()) for path in SOURCES) <= LARGEST_MEDIAN


def test_what_several_tests_need_lies_in_one_package() -> None:
    """A test file imports no other, and everything but tests and fixtures is in tests/helpers."""
    folder = ROOT / "tests"
    files = [path for path in EVERYTHING if path.is_relative_to(folder)]
    others = [path for path in files if not path.is_relative_to(folder / "helpers")]
    assert not [_name(p) for p in others if not re.match(r"test_|conftest$", p.stem)]
    imported = {
        node.module: _name(path)
        for path in files
        for node in tree_of(path).body
        if isinstance(node, ast.ImportFrom) and node.module
    }
    assert not {name: path for name, path in imported.items() if name.startswith("test_")}


def test_functions_are_short() -> None:
    too_long = {
        f"{_name(path)}:{function.name}": length
        for path in EVERYTHING
        for function in _functions(path)
        if (length := (function.end_lineno or 0) - function.lineno + 1) > LONGEST_FUNCTION
    }
    assert not too_long


def test_functions_take_few_parameters() -> None:
    too_many: dict[str, int] = {}
    for path in SOURCES:
        for function in _functions(path):
            given = [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]
            names = [argument.arg for argument in given if argument.arg not in ("self", "cls")]
            if len(names) > MOST_PARAMETERS and not _is_command(function):
                too_many[f"{_name(path)}:{function.name}"] = len(names)
    assert not too_many


def _is_command(function: Function) -> bool:
    """A verb's function is its command line: each parameter is a flag with its help."""
    annotations = [a.annotation for a in function.args.kwonlyargs if a.annotation is not None]
    return any("SharedFlags" in ast.unparse(annotation) for annotation in annotations)


def _is_docstring(node: ast.stmt) -> bool:
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )


def test_the_sources_stay_within_their_budget_of_statements() -> None:
    """Counted on the syntax tree, without docstrings and without the suites in `testing`."""
    text = BUDGET.read_text(encoding="utf-8")
    (most,) = re.findall(r"^Most statements: ([\d,]+)$", text, flags=re.MULTILINE)
    count = sum(
        not _is_docstring(node)
        for path in SOURCES
        if not _name(path).startswith("testing/")
        for kind, nodes in nodes_of(path).items()
        if issubclass(kind, ast.stmt)
        for node in nodes
    )
    assert count <= int(most.replace(",", "")), f"{count:,} statements; see {BUDGET.name}"


def test_no_grab_bags() -> None:
    assert not [_name(p) for p in EVERYTHING if p.stem in ("utils", "util", "helpers", "misc")]
    bad = re.compile(r"(Manager|Helper|Util|Utils)$")
    named = [
        f"{_name(path)}:{node.name}"
        for path in SOURCES
        for node in _nodes(path, ast.ClassDef)
        if bad.search(node.name)
    ]
    assert not named


def test_no_star_imports() -> None:
    stars = [
        _name(path)
        for path in EVERYTHING
        for node in _nodes(path, ast.ImportFrom)
        if any(alias.name == "*" for alias in node.names)
    ]
    assert not stars


def test_only_the_command_line_prints() -> None:
    printing = [
        f"{_name(path)}:{node.lineno}"
        for path in SOURCES
        if not _name(path).startswith("cli/")
        for node in _nodes(path, ast.Call)
        if isinstance(node.func, ast.Name) and node.func.id in ("print", "input", "breakpoint")
    ]
    assert not printing


def test_only_settings_read_the_environment() -> None:
    reading = [
        f"{_name(path)}:{node.lineno}"
        for path in SOURCES
        if _name(path) != "core/settings.py"
        for node in _nodes(path, ast.Attribute, ast.alias)
        if (node.attr if isinstance(node, ast.Attribute) else node.name) in ENVIRONMENT
    ]
    assert not reading


def test_nothing_swallows_every_error() -> None:
    broad: list[str] = []
    for path in SOURCES:
        for node in _nodes(path, ast.ExceptHandler):
            if _passes_on(node):
                continue
            kinds = {"BaseException"} if node.type is None else _names(node.type)
            if kinds & {"Exception", "BaseException"} and _name(path) not in CATCHES_ALL:
                broad.append(f"{_name(path)}:{node.lineno}")
    assert not broad


def _names(node: ast.expr) -> set[str]:
    return {child.id for child in ast.walk(node) if isinstance(child, ast.Name)}


def _passes_on(handler: ast.ExceptHandler) -> bool:
    """Whether the handler only tidies up: its last statement raises the same error again."""
    last = handler.body[-1]
    return isinstance(last, ast.Raise) and last.exc is None


def test_modules_say_what_they_are() -> None:
    silent = [
        _name(path)
        for path in SOURCES
        if tree_of(path).body and ast.get_docstring(tree_of(path)) is None
    ]
    assert not silent


def test_annotations_are_lazy() -> None:
    eager = [
        _name(path)
        for path in SOURCES
        if any(_functions(path)) and "from __future__ import annotations" not in path.read_text()
    ]
    assert not eager


def _table(tree: ast.Module, name: str) -> dict[str, str]:
    """A table of texts that a module assigns to a name; importing it might want a compiler."""
    assigned = (node for node in tree.body if isinstance(node, ast.Assign))
    return next(
        ast.literal_eval(node.value) for node in assigned if ast.unparse(node.targets[0]) == name
    )


def test_implementations_have_both_halves() -> None:
    offered = registry.implementations().items()
    names = {name for name, spec in offered if type(spec).__module__.startswith("tilewright.")}
    lowerings = PACKAGE / "compiler" / "lower"
    shared = _table(tree_of(lowerings / "registry.py"), "_ELSEWHERE")
    assert set(shared) < names
    for module in registry._BUILT_IN:  # the table that this test is about
        assert (PACKAGE / "kernels" / f"{module.replace('.', '/')}.py").is_file(), module
    for name in names:
        spec = registry.implementation(name)
        if isinstance(spec, OtherBuilder) and spec.builder not in BUILT_BY_TVM:
            continue
        path = lowerings / f"{shared.get(name, name).replace('.', '/')}.py"
        assert path.is_file(), name
        assert registry.implementation(name).name == name
        assert "lower" in {function.name for function in _functions(path)}, name


def test_nothing_is_left_for_later() -> None:
    notes = re.compile(r"\b(TODO|FIXME|XXX|HACK)\b")
    found = [_name(path) for path in SOURCES if notes.search(path.read_text())]
    assert not found


def test_the_facade_stays_a_facade() -> None:
    files = [path for path in SOURCES if _name(path).startswith("session/")]
    assert len(files) <= MOST_FACADE_FILES
    assert sum(len(path.read_text().splitlines()) for path in files) <= MOST_FACADE_LINES


def test_licence_is_there() -> None:
    text = (ROOT / "LICENSE").read_text()
    assert "Apache License" in text and "Version 2.0" in text


@pytest.mark.parametrize("name", ["main job", "tests"])
def test_ci_runs_the_commands_of_the_readme(name: str) -> None:
    command = readme_command(name)
    assert command.startswith("python3 -m venv .venv && .venv/bin/pip install ")
    script = (ROOT / ".ci" / "run").read_text()
    assert f'run_readme "{name}"' in script
    assert ".venv/bin/pytest" not in script and ".venv/bin/tilewright" not in script
    # what the script's own extraction finds is the same line
    function = script[script.index("readme_command()") : script.index("copy_tree()")]
    shell = f'tree="{ROOT}"\n{function}\nreadme_command "{name}"'
    found = subprocess.run(["bash", "-c", shell], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == command


def readme_command(name: str) -> str:
    """The only line of the bash block after `<!-- command: NAME -->`."""
    text = (ROOT / "README.md").read_text()
    blocks = re.findall(rf"<!-- command: {name} -->\n```bash\n(.*?)```", text, re.DOTALL)
    assert len(blocks) == 1
    (line,) = blocks[0].strip().splitlines()
    return line


IMPORTS = """
import sys
import tilewright
if sys.argv[1] == "session":
    import tilewright.session
if sys.argv[1] == "help":
    from tilewright.cli.main import main
    assert main(["--help"]) == 0
    assert main(["optimize", "--help"]) == 0
heavy = sorted(set(sys.argv[2:]) & set(sys.modules))
sys.exit(f"loaded: {heavy}" if heavy else 0)
"""


@pytest.mark.parametrize(
    ("what", "heavy"),
    [("import", HEAVY), ("help", HEAVY), ("session", ("scipy", "sklearn", "torch", "xgboost"))],
    ids=["import", "help", "session"],
)
def test_starting_is_light(what: str, heavy: Sequence[str]) -> None:
    command = [sys.executable, "-c", IMPORTS, what, *heavy]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


def test_no_timing_of_drawn_examples_decides_a_test() -> None:
    """A machine that others use at the same time is slow for seconds."""
    drawn = hypothesis.settings.default
    assert drawn.deadline is None
    assert hypothesis.HealthCheck.too_slow in drawn.suppress_health_check
