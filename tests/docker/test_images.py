"""Images hold what profiles, manifests and benchmarks expect in them, and nothing else of the project."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from plumbline.benchmarks import benchmark, resolve_params
from plumbline.benchmarks.benchmark import Placement
from plumbline.clusters.kubernetes import Kubernetes
from plumbline.clusters.profile import load_profile
from plumbline.execution import pods
from plumbline.kubernetes.probing import GANG_PROGRAMS, PROGRAMS
from plumbline.kubernetes.worker import sshd_config
from plumbline.model import Device, Origin
from tests.docker.images import (
    DOCKER,
    NAMES,
    ROOT,
    RUNNERS,
    build_images,
    copied,
    environment,
    instructions,
    last_stage,
    materialise,
    user,
)
from tests.kubernetes.profiles import plain, spec

PROFILE = load_profile("hgx-h100")
EVIDENCE = Path("/mnt/plumbline/results/c/s/r/evidence")
SYSTEM_PYTHON = str(getattr(sys, "_base_executable", sys.executable))


# -- what pods expect ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("image", RUNNERS)
def test_the_user_is_the_one_that_pods_run_as(image: str) -> None:
    default = Kubernetes.model_fields["run_as_user"].default
    assert user(image) == f"{default}:{default}"
    install = (DOCKER / "runner" / "install.sh").read_text()
    assert f"\nuid={default}\n" in install
    assert f"getent passwd {default} " in (DOCKER / "runner" / "check.sh").read_text()


@pytest.mark.parametrize("image", RUNNERS)
def test_images_of_pods_stand_on_the_runner(image: str) -> None:
    if image == "runner":
        return
    taken = [one.rest for one in instructions(image) if one.word == "FROM" and "${RUNNER}" in one.rest]
    assert taken
    from_runner = last_stage(image)[0].rest == "${RUNNER}"
    assert from_runner or any(one.rest == "--from=runner /opt/plumbline /opt/plumbline" for one in last_stage(image))
    if image != "launcher":  # adds nothing that could be missing
        steps = " ".join(one.rest for one in last_stage(image) if one.word == "RUN")
        assert "/opt/plumbline/check.sh" in steps


def test_the_package_and_the_programs_are_where_manifests_look(tmp_path: Path) -> None:
    places = {place: source for source, place in copied("runner")}
    package = Kubernetes.model_fields["package"].default
    assert PROFILE.kubernetes is not None
    assert PROFILE.kubernetes.package == package
    assert places[f"{package}/plumbline"] == ROOT / "include" / "plumbline"
    assert places[f"{PROFILE.programs}/plumbline_bench"] == ROOT / "docker" / "bench" / "plumbline_bench"
    assert environment("runner")["PYTHONPATH"] == package
    assert environment("hpl-mxp")["PYTHONPATH"] == package
    check = (DOCKER / "runner" / "check.sh").read_text()
    assert f"\npython={PROFILE.python}\n" in check
    assert f"PYTHONPATH={package} " in check


def test_programs_of_gangs_are_checked_when_an_image_is_built() -> None:
    check = (DOCKER / "runner" / "check.sh").read_text()
    [line] = [line for line in check.splitlines() if line.startswith("for program in ")]
    assert set(GANG_PROGRAMS) <= set(line.replace(";", " ").split())
    for name, programs in PROGRAMS.items():
        image = build_images().BENCHMARKS[name]
        steps = " ".join(one.rest for one in last_stage(image) if one.word == "RUN")
        assert f"check.sh {' '.join(programs)}" in steps


def entry_points() -> set[str]:
    """Give the modules that containers of this project start, as manifests name them."""
    one, two = spec(["n1"]), spec(["n1", "n2"])
    worker = pods.worker_job(plain(), "b", two, 1, EVIDENCE, ("pod", "uid"), "key")["spec"]["template"]
    alone = pods.worker_job(plain(), "b", one, 1, EVIDENCE, ("pod", "uid"), None)["spec"]["template"]
    found = [
        pods.batch_pod(plain(), "b", [one], EVIDENCE),
        pods.batch_pod(plain(), "b", [two], EVIDENCE),
        worker,
        alone,
    ]
    commands = [pod["spec"]["containers"][0]["command"] for pod in found]
    assert {command[0] for command in commands} == {"/usr/bin/python3"}
    return {command[command.index("-m") + 1] for command in commands}


def commands() -> dict[str, list[tuple[str, ...]]]:
    """Give what each benchmark of the profile runs on one node and on two: its argv, and the env of the first."""
    found: dict[str, list[tuple[str, ...]]] = {}
    for name in PROFILE.images:
        one = benchmark(name)
        for nodes in (("a",), ("a", "b")):
            placement = Placement(
                launcher="kubernetes", device=Device.GPU, origin=Origin.MEASURED, nodes=nodes, accelerators_per_node=8,
                accelerator=PROFILE.accelerator.model, fabric=PROFILE.fabric.name, python=PROFILE.python,
                programs=Path(PROFILE.programs), storage_dir=PROFILE.storage.directory,
            )  # fmt: skip
            params = resolve_params(one, PROFILE.benchmarks.get(name, {}), PROFILE.name)
            command = one.command(placement, params)
            assert command.env["PYTHONPATH"] == PROFILE.programs
            found.setdefault(name, []).append(command.argv)
    return found


def test_every_benchmark_of_the_profile_has_an_image_that_holds_its_programs(tmp_path: Path) -> None:
    images = build_images().BENCHMARKS
    for name, argvs in commands().items():
        for argv in argvs:
            assert argv[0] == PROFILE.python
            module = argv[argv.index("-m") + 1]
            tail = module.removeprefix("plumbline_bench.").replace(".", "/")
            folder = ROOT / "docker" / "bench" / "plumbline_bench"
            assert (folder / f"{tail}.py").exists() or (folder / tail / "__main__.py").exists(), module
            text = (DOCKER / images[name] / "Dockerfile").read_text()
            for path in (word for word in argv[1:] if word.startswith(("/opt", "/workspace"))):
                assert path in text, f"{name}: {path} is not in docker/{images[name]}"


def test_images_of_the_profile_are_those_that_are_built() -> None:
    module = build_images()
    assert set(PROFILE.images) <= set(module.BENCHMARKS)
    for key, image in PROFILE.images.items():
        assert image.rpartition("/")[2].partition("@")[0] == module.BENCHMARKS[key]
    assert set(module.IMAGES) == set(NAMES)
    assert module.IMAGES[0] == "runner"


def test_the_port_of_sshd_needs_no_privilege() -> None:
    default = Kubernetes.model_fields["ssh_port"].default
    assert default >= 1024
    assert f"Port {default}\n" in sshd_config(Path("/t"), "10.0.0.1", default, {})


# -- the standard library is enough --------------------------------------------------------------------------------


def run_in_image(root: Path, module: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Start a module from what the runner image holds, with an interpreter that has nothing else."""
    path = os.pathsep.join([str(root / "opt/plumbline/include"), str(root / "opt/plumbline/bench")])
    return subprocess.run(
        [SYSTEM_PYTHON, "-S", "-B", "-m", module, *arguments],
        capture_output=True, text=True, env={"PYTHONPATH": path, "PATH": "/usr/bin:/bin"}, cwd=root, check=False,
    )  # fmt: skip


def modules() -> set[str]:
    benchmarks = {argv[argv.index("-m") + 1] for argvs in commands().values() for argv in argvs}
    # The trainer's ranks have torch, and nothing before them.
    return (entry_points() | benchmarks | {"plumbline.kubernetes.probe", "plumbline.execution.run_one"}) - {
        "plumbline_bench.trainer"
    }


@pytest.fixture(scope="module", name="image_root")
def _image_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return materialise("runner", tmp_path_factory.mktemp("runner"))


def test_modules_are_those_that_were_meant() -> None:
    assert modules() == {
        "plumbline.kubernetes.node", "plumbline.kubernetes.gang", "plumbline.kubernetes.worker",
        "plumbline.kubernetes.probe", "plumbline.execution.run_one", "plumbline_bench.nccl_sweep",
        "plumbline_bench.mpi_ranks", "plumbline_bench.fio_clients", "plumbline_bench.trainer.hosts",
    }  # fmt: skip


@pytest.mark.parametrize("module", sorted(modules()))
def test_what_the_runner_copies_starts_with_the_standard_library_alone(module: str, image_root: Path) -> None:
    done = run_in_image(image_root, module, "--help")
    assert done.returncode == 0, done.stderr
    assert "usage:" in done.stdout


def test_a_module_that_needs_more_would_be_seen(image_root: Path) -> None:
    done = run_in_image(image_root, "plumbline.clusters.profile")
    assert "No module named 'pydantic'" in done.stderr


# -- Airflow and MLflow --------------------------------------------------------------------------------------------


def pins(path: Path) -> set[str]:
    """Give name==version of every entry of a lock that counts for the image's Python, 3.12."""
    found = set()
    for line in path.read_text().splitlines():
        pin, _, marker = line.rstrip("\\ ").partition(" ; ")
        if "==" in pin and not pin.startswith((" ", "#")) and "python_full_version < '3.12'" not in marker:
            found.add(pin)
    return found


def test_airflow_in_the_image_has_the_versions_that_are_tested() -> None:
    ours = pins(DOCKER / "airflow" / "requirements.lock")
    tested = pins(ROOT / "requirements.lock")
    assert len(tested) > 100
    assert tested <= ours
    assert {pin.partition("==")[0] for pin in ours - tested} == {"asyncpg", "psycopg2-binary"}


def test_airflows_and_mlflows_images_are_of_the_pinned_versions() -> None:
    direct = dict(line.split("==") for line in (ROOT / "requirements.txt").read_text().splitlines() if "==" in line)
    assert f"apache/airflow:slim-{direct['apache-airflow']}-python3.12" == last_stage("airflow")[0].rest
    assert f"mlflow=={direct['mlflow']}" in pins(DOCKER / "mlflow" / "requirements.lock")


def test_the_dags_parse_from_what_the_airflow_image_copies(tmp_path: Path) -> None:
    root = materialise("airflow", tmp_path)
    program = """
import importlib.util, json, pathlib, sys
found = {}
for path in sorted(pathlib.Path("opt/airflow/dags").glob("*.py")):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    import plumbline.configuration, plumbline_airflow
    found[path.stem] = [plumbline.__file__, plumbline_airflow.__file__, str(plumbline.configuration.project_root())]
print("FOUND " + json.dumps(found))
"""
    path = os.pathsep.join([str(root / "opt/plumbline/include"), str(root / "opt/airflow/plugins")])
    variables = {**os.environ, "PYTHONPATH": path, "AIRFLOW_HOME": str(root / "opt/airflow"),
                 "PLUMBLINE_HOME": str(root / "opt/plumbline")}  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, env=variables, cwd=root, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    [line] = [line for line in done.stdout.splitlines() if line.startswith("FOUND ")]
    found = json.loads(line.removeprefix("FOUND "))
    assert set(found) == {path.stem for path in (ROOT / "dags").glob("*.py")}
    for places in found.values():
        assert all(place.startswith(str(root)) for place in places), places
