"""Builds the images with docker, podman or buildah, pushes them when asked, and says what a profile must hold.

    python3 docker/build_images.py --registry registry.example/plumbline --tag 2026.11 [--push] [IMAGE …]

Standard library only. A digest exists once an image is in a registry, so only --push can name digests; they are printed
as a profile's `images`, and written to build/images.json with the digests of the bases that were used.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
ENGINES = ("docker", "podman", "buildah")
IMAGES = ("runner", "fio", "nccl-tests", "hpl-mxp", "trainer", "launcher", "airflow", "mlflow")
"""In the order of building: the others take the runner as it was just built."""
BENCHMARKS = {
    "fio": "fio", "nccl_tests": "nccl-tests", "hpl_mxp": "hpl-mxp", "mlperf_gpt3": "trainer",
    "mlperf_bert": "trainer", "launcher": "launcher",
}  # fmt: skip
"""Keys of a profile's `images`, and the image of each."""
_FROM = re.compile(r"^FROM\s+(\S+)", re.MULTILINE)


class Engine:
    """One of ENGINES on this machine."""

    def __init__(self, name: str) -> None:
        """Take the program by name."""
        self.name = name

    def build(self, image: str, reference: str, arguments: Sequence[str]) -> None:
        """Build an image's Dockerfile, with the project as context."""
        verb = ["bud" if self.name == "buildah" else "build"]
        options = [f"--build-arg={one}" for one in arguments]
        self._run(
            [*verb, *options, "--file", str(ROOT / "docker" / image / "Dockerfile"), "--tag", reference, str(ROOT)]
        )

    def push(self, reference: str) -> str:
        """Push an image; give its digest in the registry."""
        if self.name == "docker":
            self._run(["push", reference])
            return self.digest_of(reference)
        with tempfile.NamedTemporaryFile("r", suffix=".digest") as stream:
            self._run(["push", "--digestfile", stream.name, reference])
            return stream.read().strip()

    def digest_of(self, reference: str) -> str:
        """Give the registry's digest of an image that was pulled or pushed; empty where it has none."""
        if self.name == "buildah":
            form = ["inspect", "--type", "image", "--format", "{{.FromImageDigest}}", reference]
        else:
            form = ["inspect", "--type", "image", "--format", '{{join .RepoDigests " "}}', reference]
        done = subprocess.run([self.name, *form], capture_output=True, text=True, check=False)
        name = reference.rpartition(":")[0] if ":" in reference.rpartition("/")[2] else reference
        found = re.findall(r"(\S*?)@?(sha256:[0-9a-f]{64})", done.stdout)
        return next((digest for place, digest in found if place in ("", name)), "")

    def _run(self, arguments: Sequence[str]) -> None:
        command = [self.name, *arguments]
        print("+ " + " ".join(command), flush=True)
        subprocess.run(command, check=True)


def find_engine(wanted: str) -> Engine:
    """Give the engine that was asked for, or the first that is there. Raises SystemExit naming the choices."""
    for name in (wanted,) if wanted else ENGINES:
        if shutil.which(name):
            return Engine(name)
    raise SystemExit(f"no {wanted or ', no '.join(ENGINES)} on this machine: install one, or set ENGINE")


def dockerfile(image: str) -> str:
    """Give the text of an image's Dockerfile."""
    return (ROOT / "docker" / image / "Dockerfile").read_text(encoding="utf-8")


def bases(image: str) -> list[str]:
    """Give the images of others that an image is built from."""
    return [name for name in _FROM.findall(dockerfile(image)) if "$" not in name]


def main(arguments: Sequence[str] | None = None) -> int:
    """Build what was asked; see the module. Gives the engine's exit code where it fails: what it said stands above."""
    try:
        return build(arguments)
    except subprocess.CalledProcessError as error:
        print(f"failed: {' '.join(error.cmd)}", file=sys.stderr)
        return int(error.returncode)


def build(arguments: Sequence[str] | None) -> int:
    """Build, push and record. Raises CalledProcessError."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("images", nargs="*", metavar="IMAGE", help=f"of {', '.join(IMAGES)}; none: all of them")
    parser.add_argument("--registry", default="plumbline", help="where the images belong: registry.example/plumbline")
    parser.add_argument("--tag", required=True, help="the same for all of them")
    parser.add_argument("--push", action="store_true", help="push them, and print their digests")
    parser.add_argument("--engine", default="", help=f"one of {', '.join(ENGINES)}; default: the first that is there")
    parser.add_argument("--build-arg", action="append", default=[], help="NAME=VALUE for every Dockerfile")
    options = parser.parse_args(arguments)
    unknown = sorted(set(options.images) - set(IMAGES))
    if unknown:
        parser.error(f"no image {unknown[0]}; there are {', '.join(IMAGES)}")
    engine = find_engine(options.engine)
    names = [name for name in IMAGES if not options.images or name in options.images]
    references = {name: f"{options.registry}/{name}:{options.tag}" for name in IMAGES}
    pinned: dict[str, str] = {}
    used: dict[str, str] = {}
    for name in names:
        runner = [f"RUNNER={references['runner']}"] if "${RUNNER}" in dockerfile(name) else []
        engine.build(name, references[name], [*runner, *options.build_arg])
        used |= {base: base.partition("@")[2] or engine.digest_of(base) for base in bases(name)}
        if options.push:
            pinned[name] = f"{options.registry}/{name}@{engine.push(references[name])}"
    record(references, names, pinned, used)
    return 0


def record(references: dict[str, str], names: Sequence[str], pinned: dict[str, str], used: dict[str, str]) -> None:
    """Write build/images.json, and print the part of a profile that names the images."""
    found = {"images": {name: pinned.get(name, references[name]) for name in names}, "bases": used}
    path = ROOT / "build" / "images.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    print(f"\n# {path.relative_to(ROOT)} has all of them. For the cluster's profile:")
    if not pinned:
        print("# not pushed, so without digests: kubernetes.unpinned_images must be true to use them")
    print("images:")
    for key, image in BENCHMARKS.items():
        if image in names:
            print(f"  {key}: {found['images'][image]}")


if __name__ == "__main__":
    sys.exit(main())
