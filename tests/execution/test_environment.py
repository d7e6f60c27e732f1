"""What a snapshot holds of GPUs, with a made-up nvidia-smi in the place of the real one."""

from __future__ import annotations

from pathlib import Path

import pytest

from plumbline.execution.environment import snapshot

SMI = """#!/bin/sh
case "$1" in
--query-gpu=index,uuid,*)
    n=$(printf %s "$1" | tr -cd , | wc -c)
    for gpu in 0 1; do printf '%s, GPU-%s' $gpu $gpu; for i in $(seq 2 $n); do printf ', 16'; done; echo; done;;
--query-remapped-rows=gpu_uuid,*) echo 'GPU-1, 3, 0, 1, 0';;
*) exit 2;;
esac
"""


@pytest.fixture
def smi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "nvidia-smi"
    path.write_text(SMI)
    path.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    return path


def test_remapped_rows_stand_with_their_gpu(smi: Path) -> None:
    sound, broken = snapshot()["gpus"]
    assert (sound["index"], sound["pcie.link.width.current"]) == ("0", "16")
    assert "remapped_rows.pending" not in sound  # not told, so not there
    assert (broken["uuid"], broken["remapped_rows.correctable"], broken["remapped_rows.pending"]) == ("GPU-1", "3", "1")


def test_an_old_nvidia_smi_that_knows_no_remapped_rows_tells_the_rest(smi: Path) -> None:
    smi.write_text(SMI.replace("--query-remapped-rows", "--query-nothing"))
    assert [gpu["uuid"] for gpu in snapshot()["gpus"]] == ["GPU-0", "GPU-1"]


def test_without_an_answer_no_gpu_is_told(smi: Path) -> None:
    smi.write_text("#!/bin/sh\necho 'No devices were found'; exit 6\n")
    assert "gpus" not in snapshot()
