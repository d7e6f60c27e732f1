"""What all launches of a launcher share: its cluster, its pod, and how much they may ask of both at once."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from plumbline.kubernetes import ssh
from plumbline.kubernetes.api import Api
from plumbline.kubernetes.sweeping import Sweeper

STARTS_A_TICK = 8
_ASK_S = 0.25


@dataclass(kw_only=True)
class Site:
    """What all launches of a launcher share. `owner` is its pod's name and uid."""

    api: Api
    profile: Mapping[str, Any]
    batch_id: str
    evidence: Path
    owner: tuple[str, str]
    sweeper: Sweeper
    keys: ssh.Keys | None = None
    starts_left: int = STARTS_A_TICK
    """Commands that may still start in this tick: each brings one ssh a node for a moment."""
    _asked: float = 0.0

    def may_ask(self) -> bool:
        """Say whether a question beside the watch may be asked now: a thousand launches share the API with others."""
        if time.monotonic() - self._asked < _ASK_S:
            return False
        self._asked = time.monotonic()
        return True

    @property
    def settings(self) -> Mapping[str, Any]:
        """The profile's section kubernetes."""
        found: Mapping[str, Any] = self.profile["kubernetes"]
        return found

    @property
    def jobs(self) -> str:
        """The API's path of Jobs."""
        return f"/apis/batch/v1/namespaces/{self.settings['namespace']}/jobs"
