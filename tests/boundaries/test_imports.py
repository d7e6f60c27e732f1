"""Who may import what: the rules that keep the core free of Airflow and a DAG's parse free of seconds."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
HEAVY = {"great_expectations", "mlflow", "pandas", "numpy", "matplotlib", "torch", "pyarrow", "scipy"}
MOST_NEW_MODULES = 150
"""Of the 3,500 that importing airflow.sdk and KubernetesPodOperator loads; the two DAGs together add about 70."""
IN_POD = ("plumbline.model", "plumbline.execution.environment", "plumbline.execution.run_one")


def sources(*folders: str) -> list[Path]:
    found = [path for folder in folders for path in sorted((ROOT / folder).rglob("*.py"))]
    assert found
    return found


def imports(path: Path) -> Iterator[tuple[str, bool]]:
    """Give every imported module and whether it is imported when the file is, not only inside a function."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    inside = {
        id(node)
        for outer in ast.walk(tree)
        if isinstance(outer, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)) or _for_types_only(outer)
        for node in ast.walk(outer)
    }
    for node in ast.walk(tree):
        at_import = id(node) not in inside
        if isinstance(node, ast.Import):
            yield from ((alias.name, at_import) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            yield str(node.module), at_import


def _for_types_only(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)


def shown(path: Path) -> str:
    return str(path.relative_to(ROOT))


def top(module: str) -> str:
    return module.split(".", maxsplit=1)[0]


def loaded_by(code: str, *flags: str) -> dict[str, object]:
    """Run code in a fresh interpreter; give what it put into `result` and the modules loaded at the end."""
    told = "print(json.dumps([result, sorted(sys.modules)]), file=sys.stderr)"
    program = f"import sys, json\nresult = None\n{code}\n{told}"
    done = subprocess.run(
        [sys.executable, *flags, "-c", program], capture_output=True, text=True, cwd=ROOT, check=False, timeout=300
    )
    assert done.returncode == 0, done.stderr[-3000:]
    result, modules = json.loads(done.stderr.splitlines()[-1])
    return {"result": result, "modules": set(modules)}


@pytest.mark.parametrize("path", sources("include/plumbline"), ids=shown)
def test_the_core_knows_no_orchestrator(path: Path) -> None:
    found = {top(module) for module, _ in imports(path)}
    assert not found & {"airflow", "kubernetes", "kubernetes_asyncio", "plumbline_airflow", "deployment"}


@pytest.mark.parametrize("path", sources("include/plumbline", "plugins", "dags"), ids=shown)
def test_heavy_modules_are_imported_inside_functions_only(path: Path) -> None:
    assert not {top(module) for module, at_import in imports(path) if at_import} & HEAVY


@pytest.mark.parametrize("path", sources("dags", "plugins", "include/plumbline"), ids=shown)
def test_each_package_has_one_spelling(path: Path) -> None:
    assert not {top(module) for module, _ in imports(path)} & {"include", "plugins", "dags"}


def test_only_the_airflow_side_speaks_airflow() -> None:
    speakers = {
        path.relative_to(ROOT).parts[0]
        for path in sources("include", "plugins", "dags", "docker", "deployment")
        if "airflow" in {top(module) for module, _ in imports(path)}
    }
    assert speakers == {"plugins", "dags", "deployment"}


def test_the_command_line_starts_without_heavy_modules() -> None:
    code = "sys.path.insert(0, 'include')\nimport plumbline.cli, plumbline.stages\nplumbline.cli.build_parser()"
    found = loaded_by(code)
    assert not {top(m) for m in found["modules"]} & (HEAVY | {"airflow", "jinja2"})
    assert "plumbline.readers.nccl_tests" not in found["modules"]


def test_what_runs_in_a_pod_needs_only_the_standard_library() -> None:
    names = ", ".join(IN_POD)
    found = loaded_by(f"sys.path.insert(0, 'include')\nimport {names}", "-I", "-S")
    foreign = {top(m) for m in found["modules"]} - set(sys.stdlib_module_names) - {"plumbline", "__main__"}
    assert not {name for name in foreign if not name.startswith("_")}


def test_parsing_the_dags_loads_nothing_heavy_and_little_at_all() -> None:
    code = """
import airflow.sdk
from airflow.providers.cncf.kubernetes.operators.pod import KubernetesPodOperator
before = set(sys.modules)
sys.path[:0] = ["include", "plugins"]
import importlib.util, pathlib
for path in sorted(pathlib.Path("dags").glob("*.py")):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    spec.loader.exec_module(importlib.util.module_from_spec(spec))
result = sorted(set(sys.modules) - before)
"""
    new = loaded_by(code)["result"]
    assert isinstance(new, list)
    assert "plumbline_airflow.pipeline" in new  # the DAGs were really read
    assert not {top(m) for m in new} & HEAVY
    assert len(new) <= MOST_NEW_MODULES, f"{len(new)} modules beyond Airflow's own: {new}"
