"""Commands for who operates a cluster: doctor and reap."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.commands.command_line import run

from plumbline.errors import ExitCode


def test_a_doctor_who_is_led_nowhere_says_so_in_a_row_of_his_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "nowhere"))
    code, out, err = run(capsys, "doctor", "hgx-h100")
    first, mend = out.splitlines()
    assert (code, err) == (ExitCode.CLOSED, "")
    assert first.startswith("fail  api: kubernetes.access names no way to the API, so the kubeconfig")
    assert mend.startswith("      → give the profile's kubernetes.access one of kubeconfig: FILE")
    assert run(capsys, "doctor", "--cluster", "hgx-h100") == (code, out, err)
    code, out, _ = run(capsys, "doctor", "hgx-h100", "--json")
    assert (code, json.loads(out)["state"], json.loads(out)["name"]) == (ExitCode.CLOSED, "fail", "api")
    code, _, err = run(capsys, "doctor", "local")
    assert code == ExitCode.USAGE and "it has no Kubernetes cluster" in err
    for command in (["plan", "--cluster", "hgx-h100"], ["reap", "hgx-h100"]):
        code, _, err = run(capsys, *command)
        assert code == ExitCode.USAGE and "`plumbline doctor hgx-h100` tells more" in err
