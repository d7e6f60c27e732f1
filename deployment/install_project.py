"""Make the checkout importable in the environment that runs this, and give it the console script `plumbline`.

Two lines in a .pth file instead of a build: no build tool has to be fetched, and edits count at once.
"""

import sys
import sysconfig
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def main() -> None:
    """Write <site-packages>/plumbline.pth and <bin>/plumbline."""
    site_packages = Path(sysconfig.get_path("purelib"))
    (site_packages / "plumbline.pth").write_text(f"{ROOT / 'include'}\n{ROOT / 'plugins'}\n")
    script = Path(sysconfig.get_path("scripts")) / "plumbline"
    # Through /bin/sh, because a path with a space can't stand in a #! line.
    quoted = sys.executable.replace("'", "'\\''")
    script.write_text(f"#!/bin/sh\nexec '{quoted}' -m plumbline.cli \"$@\"\n")
    script.chmod(0o755)


if __name__ == "__main__":
    main()
