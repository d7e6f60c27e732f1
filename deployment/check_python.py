"""Refuse a Python that the locks were not made for, in a sentence; this file must parse on any Python 3."""

import platform
import sys

if sys.version_info[:2] not in ((3, 11), (3, 12)):
    sys.exit(
        f"Plumbline needs Python 3.11 or 3.12; {sys.executable} is {platform.python_version()}. "
        "Name another: make PYTHON=python3.12 …"
    )
