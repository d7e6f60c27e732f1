"""Which API a profile means: kubeconfig files, the pod's own account, or what Airflow knows as a connection."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Callable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from plumbline.clusters.kubernetes import Access as Chosen
from plumbline.clusters.kubernetes import Kubernetes
from plumbline.clusters.profile import ClusterProfile
from plumbline.configuration import load_yaml
from plumbline.errors import ConfigError, near_match
from plumbline.kubernetes.api import SERVICE_ACCOUNT, Access, Api, ApiError, in_cluster, pem

Lookup = Callable[[str], Mapping[str, Any]]
"""Gives the extras of an Airflow connection."""
_lookups: list[Lookup] = []
_PLUGIN_LIMIT_S = 60


class NoAccessError(ConfigError):
    """The way to the API that a profile names leads nowhere: `found` says which way and why, `mend` what to do."""

    def __init__(self, profile: str, found: str) -> None:
        """Tell what was found, the choices, and where to learn more."""
        super().__init__(f"profile {profile}: {found}; {self.mend}; `plumbline doctor {profile}` tells more")
        self.found = found

    mend = (
        "give the profile's kubernetes.access one of kubeconfig: FILE (and context: NAME), in_cluster: true (where "
        "this runs in a pod) or connection: NAME (an Airflow connection; the command line knows none), or none of "
        "them and have KUBECONFIG name a file"
    )


def use_connections(lookup: Lookup) -> None:
    """Say how Airflow connections are read. The Airflow side calls this; the core knows no Airflow."""
    _lookups[:] = [lookup]


def settings_of(profile: ClusterProfile) -> Kubernetes:
    """Give the section kubernetes. Raises ConfigError for a cluster of another kind."""
    if profile.kubernetes is None:
        raise ConfigError(f"profile {profile.name} is of launcher {profile.launcher}: it has no Kubernetes cluster")
    return profile.kubernetes


def connect(profile: ClusterProfile) -> Api:
    """Give the API of a profile's cluster; nothing is asked yet. Raises NoAccessError, ConfigError."""
    settings = settings_of(profile)
    try:
        return Api(_access(profile, settings.access))
    except (ConfigError, ApiError) as error:
        raise NoAccessError(profile.name, f"{_way(settings.access)}: {error}") from None


def _access(profile: ClusterProfile, chosen: Chosen) -> Access:
    if chosen.connection:
        return _from_connection(chosen.connection)
    if _own_account(chosen):
        return in_cluster()
    path = profile.path(chosen.kubeconfig) if chosen.kubeconfig else _default_kubeconfig()
    return from_kubeconfig(load_yaml(path), str(path), chosen.context)


def _own_account(chosen: Chosen) -> bool:
    in_pod = "KUBERNETES_SERVICE_HOST" in os.environ and (SERVICE_ACCOUNT / "token").is_file()
    return chosen.in_cluster or (not chosen.kubeconfig and in_pod)


def _way(chosen: Chosen) -> str:
    """Name the key of the profile that decides how the API is reached."""
    for key in ("connection", "kubeconfig"):
        if value := getattr(chosen, key):
            return f"kubernetes.access.{key} {value}"
    if chosen.in_cluster:
        return "kubernetes.access.in_cluster"
    default = "this pod's account" if _own_account(chosen) else f"the kubeconfig {_default_kubeconfig()}"
    return f"kubernetes.access names no way to the API, so {default} is taken"


def _default_kubeconfig() -> Path:
    return Path(os.environ.get("KUBECONFIG") or Path.home() / ".kube" / "config")


def _from_connection(name: str) -> Access:
    if not _lookups:
        raise ConfigError("only Airflow knows its connections, and this is the command line")
    extras = _lookups[0](name)
    context = extras.get("cluster_context") or None
    if extras.get("kube_config"):
        text = extras["kube_config"]
        return from_kubeconfig(json.loads(text) if isinstance(text, str) else text, f"connection {name}", context)
    if extras.get("kube_config_path"):
        path = Path(extras["kube_config_path"])
        return from_kubeconfig(load_yaml(path), str(path), context)
    return in_cluster()


def from_kubeconfig(data: Any, where: str, context: str | None = None) -> Access:
    """Read a kubeconfig: certificates, tokens, or a credential plugin. Raises ConfigError naming what is missing."""
    if not isinstance(data, Mapping):
        raise ConfigError(f"{where}: not a kubeconfig")
    contexts = _named(data, "contexts", "context")
    name = context or data.get("current-context") or ""
    if name not in contexts:
        raise ConfigError(f"{where}: no context {name!r}{near_match(str(name), contexts)}")
    chosen = contexts[name]
    clusters, users = _named(data, "clusters", "cluster"), _named(data, "users", "user")
    cluster, user = clusters.get(str(chosen.get("cluster"))), users.get(str(chosen.get("user")), {})
    if not cluster or "server" not in cluster:
        raise ConfigError(f"{where}: context {name} names cluster {chosen.get('cluster')!r}, which has no server")
    folder = Path(where).parent
    certificate = _file_or_data(user, "client-certificate", folder), _file_or_data(user, "client-key", folder)
    authority = _file_or_data(cluster, "certificate-authority", folder)
    return Access(
        server=cluster["server"],
        namespace=chosen.get("namespace", "default"),
        ca_data=authority,
        token=user.get("token"),
        token_file=user.get("tokenFile"),
        token_command=_plugin(user["exec"], where) if "exec" in user else None,
        client_certificate="\n".join(part for part in certificate if part) or None,
        insecure=bool(cluster.get("insecure-skip-tls-verify")),
    )


def _named(data: Mapping[str, Any], key: str, inner: str) -> dict[str, Mapping[str, Any]]:
    return {item["name"]: item.get(inner) or {} for item in data.get(key) or () if isinstance(item, Mapping)}


def _file_or_data(section: Mapping[str, Any], key: str, folder: Path) -> str | None:
    if section.get(f"{key}-data"):
        return pem(str(section[f"{key}-data"]))
    if section.get(key):
        try:
            return Path(folder / str(section[key])).read_text(encoding="utf-8")
        except OSError as error:
            raise ConfigError(f"kubeconfig: {key} {section[key]}: {error.strerror}") from None
    return None


def _plugin(section: Mapping[str, Any], where: str) -> Callable[[], str]:
    """Give a function that asks a credential plugin for a token, again when the last one has expired."""
    kept: dict[str, Any] = {"token": "", "until": 0.0}

    def token() -> str:
        if time.time() < kept["until"]:
            return str(kept["token"])
        environment = {**os.environ, **{item["name"]: item["value"] for item in section.get("env") or ()}}
        command = [section["command"], *(section.get("args") or ())]
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, env=environment, timeout=_PLUGIN_LIMIT_S, check=True
            )
            status = json.loads(done.stdout)["status"]
            expires = status.get("expirationTimestamp")
            until = datetime.fromisoformat(expires).timestamp() - 60 if expires else time.time() + 300
            kept.update(token=status["token"], until=until)
        except (OSError, subprocess.SubprocessError, ValueError, KeyError) as error:
            why = getattr(error, "strerror", None) or error
            raise ConfigError(f"{where}: the credential plugin {section.get('command')} failed: {why}") from None
        return str(kept["token"])

    return token
