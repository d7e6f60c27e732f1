"""Dockerfiles build on what is pinned, download what is verified, and run as nobody special."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docker.images import DOCKER, DOCKERFILES, NAMES, ROOT, copied, environment, instructions, user


def test_hadolint_has_nothing_to_say() -> None:
    program = Path(sys.executable).with_name("hadolint")
    command = [str(program), "--config", str(DOCKER / ".hadolint.yaml"), *map(str, DOCKERFILES)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    bad = "FROM ubuntu:latest\nRUN apt-get install fio\n"
    again = subprocess.run([*command[:3], "-"], input=bad, capture_output=True, text=True, check=False)
    assert "DL3007" in again.stdout  # it would have said something


@pytest.mark.parametrize("image", NAMES)
def test_bases_are_pinned(image: str) -> None:
    bases = [one.rest.split()[0] for one in instructions(image) if one.word == "FROM"]
    assert bases
    for base in bases:
        if base == "${RUNNER}":
            continue
        name, _, digest = base.partition("@")
        tag = name.rpartition("/")[2].partition(":")[2]
        assert re.fullmatch(r"sha256:[0-9a-f]{64}", digest) or re.search(r"\d+\.\d+", tag), base
        assert "latest" not in tag


def test_images_of_the_same_base_name_the_same_digest() -> None:
    seen: dict[str, set[str]] = {}
    for image in NAMES:
        for one in instructions(image):
            if one.word == "FROM" and "@" in one.rest:
                name, _, digest = one.rest.split()[0].partition("@")
                seen.setdefault(name, set()).add(digest)
    assert seen
    assert {name for name, digests in seen.items() if len(digests) > 1} == set()


@pytest.mark.parametrize("image", NAMES)
def test_no_image_runs_as_root_or_asks_for_gpus_by_itself(image: str) -> None:
    uid = user(image).partition(":")[0]
    assert uid.isdigit()
    assert int(uid) > 0
    assert environment(image).get("NVIDIA_VISIBLE_DEVICES") in (None, "void")


@pytest.mark.parametrize("image", NAMES)
def test_what_is_copied_exists_and_is_let_through_by_dockerignore(image: str) -> None:
    rules = [line for line in (ROOT / ".dockerignore").read_text().splitlines() if line and not line.startswith("#")]
    assert rules[0] == "*"  # only what is named reaches a build
    let = [rule[1:] for rule in rules if rule.startswith("!")]
    kept_out = [rule for rule in rules[1:] if not rule.startswith(("!", "**"))]
    for source, _ in copied(image):
        assert source.exists(), source
        inside = source.relative_to(ROOT).as_posix()
        assert any(inside == rule or inside.startswith(rule + "/") for rule in let), inside
        assert not any(inside == rule or inside.startswith(rule + "/") for rule in kept_out), inside


def test_what_is_downloaded_is_verified() -> None:
    found = [(image, one) for image in NAMES for one in instructions(image) if re.search(r"https?://", one.rest)]
    assert [image for image, _ in found] == ["nccl-tests"]
    text = (DOCKER / "nccl-tests" / "Dockerfile").read_text()
    assert re.search(r"^ARG NCCL_TESTS_SHA256=[0-9a-f]{64}$", text, re.MULTILINE)
    steps = [one.rest for one in instructions("nccl-tests") if one.word == "RUN"]
    assert any(step.index("sha256sum --check") < step.index("tar ") for step in steps if "tar " in step)


@pytest.mark.parametrize("image", ["airflow", "mlflow", "trainer"])
def test_python_packages_are_installed_with_hashes(image: str) -> None:
    steps = " && ".join(one.rest for one in instructions(image) if one.word == "RUN").split("&&")
    pips = [step for step in steps if "pip install" in step]
    assert pips
    for step in pips:
        # torch alone: which build fits is the machine's affair, and its version is pinned.
        assert "--require-hashes" in step or "requirements-torch.txt" in step, step
