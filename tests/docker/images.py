"""Dockerfiles as the tests of docker/ read them: instructions, what they put into an image; and what builds them."""

from __future__ import annotations

import re
import shutil
from dataclasses import dataclass
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
DOCKER = ROOT / "docker"
DOCKERFILES = sorted(DOCKER.glob("*/Dockerfile"))
NAMES = [path.parent.name for path in DOCKERFILES]
RUNNERS = ("runner", "fio", "nccl-tests", "hpl-mxp", "trainer", "launcher")
"""Images that pods of a profile run."""


@dataclass(frozen=True)
class Instruction:
    """One instruction of a Dockerfile: its keyword and the rest, on one line."""

    word: str
    rest: str


def instructions(image: str) -> list[Instruction]:
    """Read a Dockerfile; comments and line continuations are gone."""
    text = (DOCKER / image / "Dockerfile").read_text(encoding="utf-8")
    lines = "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("#"))
    joined = re.sub(r"\\\n\s*", "", lines)
    return [Instruction(*line.split(maxsplit=1)) for line in joined.splitlines() if line.strip()]


def last_stage(image: str) -> list[Instruction]:
    """Give the instructions of the stage that becomes the image."""
    found = instructions(image)
    start = max(n for n, one in enumerate(found) if one.word == "FROM")
    return found[start:]


def user(image: str) -> str:
    """Give whom the image runs as: its own last USER, else the runner's."""
    found = [one.rest for one in last_stage(image) if one.word == "USER"]
    return found[-1] if found else user("runner")


def environment(image: str) -> dict[str, str]:
    """Give the variables that the image sets itself."""
    pairs = (re.findall(r"(\w+)=(\S*)", one.rest) for one in last_stage(image) if one.word == "ENV")
    return {name: value for found in pairs for name, value in found}


def copied(image: str) -> list[tuple[Path, str]]:
    """Give what the image copies from the project: source here, place there."""
    found = []
    for one in last_stage(image):
        if one.word != "COPY" or "--from=" in one.rest:
            continue
        *sources, target = [word for word in one.rest.split() if not word.startswith("--")]
        for source in sources:
            place = target + Path(source).name if target.endswith("/") else target
            found.append((ROOT / source, place))
    return found


def materialise(image: str, root: Path) -> Path:
    """Put what the image copies from the project where the image has it, below `root`; give `root`."""
    for source, place in copied(image):
        target = root / place.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, target)
    return root


def build_images() -> Any:
    """Give docker/build_images.py as a module."""
    return program(DOCKER / "build_images.py")


def program(path: Path) -> Any:
    """Give a file that is a program of its own as a module."""
    found = spec_from_file_location(path.stem, path)
    assert found is not None
    assert found.loader is not None
    module = module_from_spec(found)
    found.loader.exec_module(module)
    return module
