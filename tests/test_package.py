"""The shape of the package: what imports what, and what a cold start loads."""

import ast
import importlib
import subprocess
import sys
from pathlib import Path

import pytest

import blockcalc
from blockcalc.cli import COMMANDS

HOME = Path(blockcalc.__file__).parent

ORDER = [
    "errors", "dims", "declare", "tensor", "recorder", "rules", "tape", "budget", "convention", "blocks", "model",
    "heads", "freedom", "catalogue", "readers", "text", "tidy", "quantities", "symbolic",
    "breakdown", "explain", "inverse", "whole", "compiled", "exports", "claims", "plots", "parallel", "storage",
    "memory", "timing", "plan", "comparisons", "report",
    "sweep", "cli",
]  # fmt: skip
"""A module of the engine imports only what stands before it."""

BLOCKS = [
    "norm", "position", "mlp", "attention", "mla", "moe", "linear_attention", "mixer", "short_convolution", "state_space",
    "embedding", "wiring", "altup", "prediction",
]  # fmt: skip
RULES = ["elementwise", "linear", "kernels", "attention", "mixture", "state", "delta", "scan"]
READERS = ["config", "family", "heads"]


def imports(path):
    """Modules that a file imports while it is being imported, and those it imports later, each with its level."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    now, later = [], []

    def visit(node, into):
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
                continue
            if isinstance(child, ast.ImportFrom):
                into.append((child.level, child.module or "", [alias.name for alias in child.names]))
            elif isinstance(child, ast.Import):
                into.extend((0, alias.name, []) for alias in child.names)
            visit(child, later if isinstance(child, ast.FunctionDef) else into)

    visit(tree, now)
    return now, later


def top(path):
    return path.relative_to(HOME).parts[0].removesuffix(".py")


ENGINE = sorted(path for path in HOME.rglob("*.py") if top(path) in ORDER)


@pytest.mark.parametrize("path", ENGINE, ids=lambda path: str(path.relative_to(HOME)))
def test_a_module_imports_only_what_stands_before_it(path):
    depth = len(path.relative_to(HOME).parts)
    for level, module, names in imports(path)[0]:
        if level == depth:  # from the package itself
            for name in [module] if module else names:
                found = name.partition(".")[0]
                assert found == "tables" or ORDER.index(found) < ORDER.index(top(path)), f"{path.name} imports {found}"


@pytest.mark.parametrize("folder,order", [("blocks", BLOCKS), ("rules", RULES), ("readers", READERS)])
def test_inside_a_folder_too(folder, order):
    for index, name in enumerate(order):
        for level, module, names in imports(HOME / folder / f"{name}.py")[0]:
            if level == 1:
                for found in [module] if module else names:
                    assert found in order[:index], f"{folder}/{name} imports {found}"


@pytest.mark.parametrize("path", ENGINE, ids=lambda path: str(path.relative_to(HOME)))
def test_the_engine_never_imports_torch_or_the_twins(path):
    """Not even late, but for the commands that measure with them, when they are called."""
    now, later = imports(path)
    measures = path.parent.name == "cli" and path.stem in ("verify", "bench", "claims")
    for level, module, names in now if measures else now + later:
        assert module.partition(".")[0] not in ("torch", "transformers"), path
        assert not (level and "refmodel" in (module, *names)), path


@pytest.mark.parametrize("path", sorted((HOME / "tables").rglob("*.py")), ids=lambda path: path.name)
def test_tables_never_see_a_model(path):
    for level, module, _ in imports(path)[0] + imports(path)[1]:
        assert level < 2 or module in ("errors",), f"{path.name} imports {module}"


def loaded(code):
    """The modules that a fresh interpreter has loaded after running the code."""
    program = f"{code}\nimport sys\nprint('\\n'.join(sys.modules))"
    return set(subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split())


HEAVY = {"sympy", "numpy", "torch", "transformers", "rich"}


def test_importing_the_package_loads_nothing_heavy():
    assert not HEAVY & loaded("import blockcalc")


@pytest.mark.parametrize("words", [
    ["params", "llama-3.1-8b"], ["flops", "deepseek-v3", "--mode", "train"], ["kv", "gemma-2-9b"], ["activations", "gpt2"],
    ["budget", "mixtral-8x7b"], ["params", "gated-mlp"],
])  # fmt: skip
def test_a_number_loads_neither_sympy_nor_numpy_nor_torch(words):
    code = f"from blockcalc.cli import main\ntry:\n    main({[*words, '--json']!r})\nexcept SystemExit: pass"
    assert not HEAVY & loaded(code)


def test_a_table_loads_rich_and_no_more():
    code = "from blockcalc.cli import main\ntry:\n    main(['params', 'gpt2'])\nexcept SystemExit: pass"
    assert HEAVY & loaded(code) == {"rich"}


def test_every_public_name_is_there_and_has_a_docstring():
    for name in blockcalc.__all__:
        found = getattr(blockcalc, name)
        assert found.__doc__ or name == "CONVENTIONS", name


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_an_example_in_its_help(name):
    command = importlib.import_module(f"blockcalc.cli.{name}").command
    assert f"blockcalc {name}" in command.help


@pytest.mark.parametrize("path", [*sorted(HOME.rglob("*.py")), *sorted(Path(__file__).parent.glob("*.py"))], ids=str)
def test_no_file_is_longer_than_a_reader_can_hold(path):
    assert len(path.read_text(encoding="utf-8").splitlines()) <= 400


def test_the_package_is_typed():
    assert (HOME / "py.typed").exists()
