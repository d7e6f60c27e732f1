"""Serves one node of a gang: sshd for the launcher's mpirun, for as long as the launcher lives. Standard library only.

    python -m plumbline.kubernetes.worker --evidence DIR --batch ID --launch ID --attempt N

Only the holder of the private half of PLUMBLINE_PUBLIC_KEY gets in. What the machine says of itself is written before,
and after when this program is asked to end.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from plumbline.execution.environment import hardware_identity, snapshot, software_environment
from plumbline.execution.run_one import die_with_parent, raise_stop
from plumbline.kubernetes import files
from plumbline.kubernetes.idle import wait_until_idle
from plumbline.kubernetes.machine_reports import write_report
from plumbline.kubernetes.node import parse_options

BUSY, UNFIT = 75, 78
"""Exit codes: GPUs in use by others; the image can't serve a gang. The last line printed says which."""
_OWN = ("HOME", "PWD", "OLDPWD", "SHLVL", "HOSTNAME", "_", "PLUMBLINE_PUBLIC_KEY")


def sshd_config(folder: Path, address: str, port: int, environment: Mapping[str, str]) -> str:
    """Write the configuration of an sshd that runs as any user; sessions get the pod's own environment."""
    passed = " ".join(
        f'"{name}={value}"' for name, value in sorted(environment.items())
        if name not in _OWN and not set(value) & set('"\n\\')
    )  # fmt: skip
    return f"""\
Port {port}
ListenAddress {address}
HostKey {folder}/host_key
AuthorizedKeysFile {folder}/authorized_keys
PidFile none
UsePAM no
StrictModes no
PasswordAuthentication no
KbdInteractiveAuthentication no
PubkeyAuthentication yes
AllowTcpForwarding no
AllowAgentForwarding no
X11Forwarding no
PrintMotd no
MaxStartups 2048
MaxSessions 64
LogLevel ERROR
SetEnv {passed}
"""


def serve(folder: Path) -> subprocess.Popen[bytes]:
    """Start sshd on this pod's address. Raises FileNotFoundError where the image lacks it or ssh-keygen."""
    where = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/sbin"])
    sshd = shutil.which("sshd", path=where)
    keygen = shutil.which("ssh-keygen", path=where)
    if sshd is None or keygen is None:
        raise FileNotFoundError(f"no {'sshd' if sshd is None else 'ssh-keygen'} in this image: a gang needs it")
    if os.geteuid() == 0:  # sshd then insists on it, and images rarely have it
        Path("/run/sshd").mkdir(parents=True, exist_ok=True)
    subprocess.run([keygen, "-q", "-t", "ed25519", "-N", "", "-f", str(folder / "host_key")], check=True)
    (folder / "authorized_keys").write_text(os.environ["PLUMBLINE_PUBLIC_KEY"] + "\n")
    config = folder / "sshd_config"
    address, port = os.environ["PLUMBLINE_POD_IP"], int(os.environ["PLUMBLINE_SSH_PORT"])
    config.write_text(sshd_config(folder, address, port, os.environ))
    return subprocess.Popen([sshd, "-D", "-e", "-f", str(config)], preexec_fn=die_with_parent)  # noqa: PLW1509


def tell(evidence: Path, launch_id: str, attempt: int, when: str) -> None:
    """Write what this machine says of itself, for the launcher's record."""
    node = os.environ["PLUMBLINE_NODE"]
    told = {"hardware": hardware_identity(), "software": software_environment(), "snapshot": snapshot()}
    write_report(evidence, launch_id, attempt, node, when, told)


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve until SIGTERM, until the launcher falls silent, or until sshd ends."""
    options = parse_options(arguments, __doc__)
    signal.signal(signal.SIGTERM, raise_stop)
    settings = files.read_profile(options.evidence)["kubernetes"]
    if busy := wait_until_idle(settings["idle"]):
        print(busy, flush=True)
        return BUSY
    tell(options.evidence, options.launch, options.attempt, "before")
    heart = files.Heart(options.evidence, os.environ.get("PLUMBLINE_LAUNCHER", ""), settings["waits"]["orphan_s"])
    with tempfile.TemporaryDirectory(prefix="plumbline-ssh-") as folder:
        try:
            sshd = serve(Path(folder))
        except (OSError, subprocess.CalledProcessError) as error:
            print(error, flush=True)
            return UNFIT
        try:
            while sshd.poll() is None and not heart.stopped():
                time.sleep(0.5)
        except SystemExit:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            tell(options.evidence, options.launch, options.attempt, "after")
            return 0
        finally:
            sshd.kill()
    print("the launcher is silent: ending" if heart.stopped() else f"sshd ended with {sshd.returncode}", flush=True)
    return UNFIT


if __name__ == "__main__":
    sys.exit(main())
