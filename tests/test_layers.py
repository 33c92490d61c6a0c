"""Imports point downward only, and each layer needs no more than it says."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import cksc_dist

PACKAGE = Path(cksc_dist.__file__).parent
BASE = {"errors", "spec", "series", "processes", "machine", "arrays", "files"}

# what each part may import of this package, besides itself
MAY_IMPORT: dict[str, set[str]] = {
    "errors": set(),
    "spec": {"errors"},
    "series": {"errors"},
    "processes": set(),
    "machine": set(),
    "arrays": {"series", "machine"},
    "files": set(),
    "maths": BASE,
    "io": BASE | {"maths"},
    "store": BASE | {"maths"},
    "dist": BASE | {"maths", "store", "io"},
    "models": BASE | {"maths", "store", "dist"},
    "evaluate": BASE | {"maths", "store", "dist", "models"},
    "commands": BASE | {"maths", "store", "dist", "models", "evaluate", "io"},
    "cli": BASE | {"maths", "store", "dist", "models", "evaluate", "io", "commands"},
    "__main__": BASE | {"cli"},
    "__init__": BASE | {"maths", "store", "models"},
}
TOP = {"__main__", "cli", "commands"}
CLUSTER = {"dask", "distributed", "bokeh"}
STORAGE = {"zarr", "xarray"}
LEARNING = {"sklearn"}
# what no module of a part may import from elsewhere
MUST_NOT_IMPORT: dict[str, set[str]] = {
    "errors": CLUSTER | STORAGE | LEARNING | {"numba", "scipy", "numpy"},
    "spec": CLUSTER | STORAGE | LEARNING | {"numba", "scipy", "numpy"},
    "series": CLUSTER | STORAGE | LEARNING | {"numba", "scipy"},
    "processes": CLUSTER | STORAGE | LEARNING | {"numba", "scipy", "numpy"},
    "machine": CLUSTER | STORAGE | LEARNING | {"numba", "scipy", "numpy"},
    "arrays": CLUSTER | STORAGE | LEARNING | {"numba", "scipy"},
    "files": CLUSTER | STORAGE | LEARNING | {"numba", "scipy", "numpy"},
    "maths": CLUSTER | STORAGE | LEARNING,
    "io": CLUSTER | STORAGE | LEARNING,
    "store": CLUSTER | LEARNING,
    "dist": set(),
} | {part: CLUSTER for part in ("models", "evaluate", "commands", "cli", "__init__", "__main__")}

MODULES = sorted(PACKAGE.rglob("*.py"))


def module_name(path: Path) -> str:
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if len(parts) > 2 and parts[-1] == "__init__" else parts)


def imported(source: str, module: str, *, package: bool = False) -> set[str]:
    """Return the full names of all modules that a source imports, at any depth."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            above = module.split(".")
            here = above[: len(above) - node.level + package] if node.level else []
            origin = ".".join([*here, node.module] if node.module else here)
            # `from cksc_dist import maths` imports a part by its name
            names |= {f"{origin}.{alias.name}" for alias in node.names} if origin == "cksc_dist" else {origin}
        elif isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
            called = ast.unparse(node.func).rsplit(".", 1)[-1]
            if called in ("import_module", "__import__"):
                names.add(str(node.args[0].value))
    return names


def broken_rules(part: str, names: set[str]) -> list[str]:
    """Return what a module of a part imports and may not."""
    wrong = []
    for name in sorted(names):
        first, _, rest = name.partition(".")
        if first == "cksc_dist":
            # a public name may come from anywhere: only the top may use it
            public = {"__version__"} | (set(cksc_dist.__all__) if part in TOP else set())
            if rest.split(".")[0] not in MAY_IMPORT[part] | public | {part}:
                wrong.append(name)
        elif first in MUST_NOT_IMPORT[part]:
            wrong.append(name)
    return wrong


def part_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def test_every_part_has_its_rules() -> None:
    assert {part_of(path) for path in MODULES} <= set(MAY_IMPORT), "a new part: give it a place in MAY_IMPORT"
    assert set(MAY_IMPORT) == set(MUST_NOT_IMPORT)


@pytest.mark.parametrize("path", MODULES, ids=module_name)
def test_imports_point_downward(path: Path) -> None:
    part = part_of(path)
    names = imported(path.read_text(), module_name(path), package=path.name == "__init__.py")
    if part == "series":
        names -= {"cksc_dist.io"}  # inside SeriesSet.read, tested below
    assert broken_rules(part, names) == []


@pytest.mark.parametrize(
    ("part", "line"),
    [
        ("maths", "import zarr"),
        ("maths", "from sklearn.base import clone"),
        ("maths", "from cksc_dist.store.model_files import read_model"),
        ("maths", "from ..store import model_files"),
        ("maths", "def f():\n    import dask.array as da"),
        ("maths", "from importlib import import_module\nimport_module('cksc_dist.models')"),
        ("maths", "from cksc_dist import CKSC"),
        ("store", "import distributed"),
        ("store", "from cksc_dist import models"),
        ("models", "from dask.distributed import Client"),
        ("io", "import cksc_dist.models.cksc"),
        ("spec", "import numpy as np"),
    ],
)
def test_the_rules_would_notice(part: str, line: str) -> None:
    assert broken_rules(part, imported(line, f"cksc_dist.{part}.module"))


@pytest.mark.parametrize(
    ("part", "line"),
    [
        ("maths", "import numpy, numba\nfrom cksc_dist.spec import ModelSpec\nfrom . import nqp"),
        ("dist", "import dask\nfrom cksc_dist.store import model_files"),
        ("models", "from cksc_dist.maths.dtw import pairwise_dtw"),
    ],
)
def test_the_rules_allow_what_is_meant(part: str, line: str) -> None:
    assert broken_rules(part, imported(line, f"cksc_dist.{part}.module")) == []


def test_series_reaches_for_readers_inside_read_alone() -> None:
    tree = ast.parse((PACKAGE / "series.py").read_text())

    def reads_io(node: ast.AST) -> list[ast.AST]:
        return [
            inner
            for inner in ast.walk(node)
            if isinstance(inner, ast.Import | ast.ImportFrom) and "cksc_dist.io" in ast.unparse(inner)
        ]

    (series_set,) = [n for n in tree.body if isinstance(n, ast.ClassDef) and n.name == "SeriesSet"]
    (read,) = [n for n in series_set.body if isinstance(n, ast.FunctionDef) and n.name == "read"]
    assert len(reads_io(read)) == 1
    assert len(reads_io(tree)) == 1


def run(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_maths_works_without_storage_cluster_and_learning() -> None:
    absent = sorted(CLUSTER | STORAGE | LEARNING)
    out = run(
        f"import sys\nfor name in {absent!r}: sys.modules[name] = None\n"
        "import cksc_dist.maths.dtw, cksc_dist.maths.cksc, cksc_dist.maths.kernel\n"
        "from cksc_dist import pairwise_dtw, SeriesSet\n"
        "print(pairwise_dtw(SeriesSet.from_list([[0.0, 1.0, 2.0], [0.0, 2.0]])).tolist())"
    )
    assert out.split("\n")[0] == "[[0.0, 1.0], [1.0, 0.0]]"


def test_the_package_alone_loads_nothing_heavy() -> None:
    heavy = sorted(CLUSTER | STORAGE | LEARNING | {"numba", "scipy", "pandas", "matplotlib"})
    out = run(f"import sys, cksc_dist\nprint([name for name in {heavy!r} if name in sys.modules])")
    assert out.strip() == "[]"


def test_settings_and_errors_need_no_numpy() -> None:
    out = run("import sys, cksc_dist.spec, cksc_dist.errors\nprint('numpy' in sys.modules)")
    assert out.strip() == "False"


def test_public_names_are_there_and_no_others() -> None:
    for name in cksc_dist.__all__:
        assert getattr(cksc_dist, name) is not None
        assert name in dir(cksc_dist)
    with pytest.raises(AttributeError, match="module 'cksc_dist' has no attribute 'CSKC'"):
        cksc_dist.CSKC  # noqa: B018
