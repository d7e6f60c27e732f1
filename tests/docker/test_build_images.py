"""`make images` with a program in the engine's place: order, digests, and what is not pushed is not called pinned."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest
import yaml

from tests.docker.images import DOCKER, ROOT, RUNNERS, build_images

DIGEST = "sha256:" + "d" * 64
ENGINE = f"""#!/bin/sh
echo "$(basename "$0") $*" >> "$CALLS"
case "$1" in
push) case "$*" in *--digestfile*) echo {DIGEST} > "$3" ;; esac ;;
inspect) for last; do :; done; echo "${{last%:*}}@{DIGEST}" ;;
esac
"""


def make_images(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, engine: str, *arguments: str) -> tuple[int, list[str]]:
    """Run build_images with a program in the engine's place that only notes how it was called."""
    folder = tmp_path / "bin"
    folder.mkdir()
    program = folder / engine
    program.write_text(ENGINE)
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    monkeypatch.setenv("CALLS", str(tmp_path / "calls"))
    module = build_images()
    monkeypatch.setattr(module, "ROOT", tmp_path)
    (tmp_path / "docker").symlink_to(DOCKER)
    status = module.main([*arguments, "--engine", engine])
    return status, (tmp_path / "calls").read_text().splitlines()


@pytest.mark.parametrize("engine", ["docker", "podman", "buildah"])
def test_images_are_built_in_order_pushed_and_named_by_digest(
    engine: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    registry = "registry.example:5000/lab"
    status, calls = make_images(tmp_path, monkeypatch, engine, "--registry", registry, "--tag", "t1", "--push")
    assert status == 0
    built = [re.search(r"--tag (\S+)", call).group(1) for call in calls if "--file" in call]  # type: ignore[union-attr]
    assert built == [f"{registry}/{name}:t1" for name in build_images().IMAGES]
    given = [call for call in calls if f"RUNNER={registry}/runner:t1" in call]
    assert len(given) == len(RUNNERS) - 1
    printed = capsys.readouterr().out
    images = yaml.safe_load(printed[printed.index("images:") :])["images"]
    assert images["mlperf_bert"] == f"{registry}/trainer@{DIGEST}"
    kept = json.loads((tmp_path / "build" / "images.json").read_text())
    assert kept["images"]["airflow"] == f"{registry}/airflow@{DIGEST}"
    assert kept["bases"]["nvcr.io/nvidia/hpc-benchmarks:26.02"] == DIGEST  # a tag is turned into a digest
    profile = yaml.safe_load((ROOT / "include/plumbline/clusters/profiles/hgx-h100.yaml").read_text())
    from plumbline.clusters.profile import ClusterProfile
    from plumbline.configuration import parse

    parse(ClusterProfile, {**profile, "images": images}, "with these images")


def test_images_that_were_not_pushed_are_not_called_pinned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    status, calls = make_images(tmp_path, monkeypatch, "docker", "fio", "--tag", "t1")
    assert status == 0
    assert len([call for call in calls if "--file" in call]) == 1
    printed = capsys.readouterr().out
    assert "unpinned_images" in printed
    assert "fio: plumbline/fio:t1" in printed
    assert "sha256" not in printed


def test_an_engine_that_fails_ends_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys.modules[__name__], "ENGINE", "#!/bin/sh\necho x >> $CALLS\nexit 3\n")
    status, calls = make_images(tmp_path, monkeypatch, "docker", "--tag", "t1")
    assert (status, len(calls)) == (3, 1)
    assert "failed: docker build" in capsys.readouterr().err
