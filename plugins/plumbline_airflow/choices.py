"""What the trigger form offers: file names only, because a form is built whenever the DAG is parsed."""

from __future__ import annotations

from plumbline.clusters.profile import profile_folders
from plumbline.configuration import document_names
from plumbline.suites.suite import suite_folders


def cluster_names() -> list[str]:
    """Give the cluster profiles there are."""
    return document_names(profile_folders())


def suite_names() -> list[str]:
    """Give the suites there are."""
    return document_names(suite_folders())
