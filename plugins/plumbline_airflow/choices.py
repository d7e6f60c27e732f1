"""What the trigger form offers: file names only, because a form is built whenever the DAG is parsed."""

from __future__ import annotations

from plumbline.clusters.profile import profile_folders
from plumbline.suites.suite import suite_folders


def cluster_names() -> list[str]:
    """Give the cluster profiles there are."""
    return sorted({path.stem for folder in profile_folders() for path in folder.glob("*.yaml")})


def suite_names() -> list[str]:
    """Give the suites there are."""
    return sorted({path.stem for folder in suite_folders() for path in folder.glob("*.yaml")})
