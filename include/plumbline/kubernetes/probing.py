"""The part of `plumbline doctor` that needs pods: each image once, on an idle node, for seconds.

Nothing is started while a run holds the cluster.
"""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import Any

from plumbline.clusters.profile import ClusterProfile
from plumbline.execution import pods
from plumbline.kubernetes import diagnosis, lease
from plumbline.kubernetes.access import settings_of
from plumbline.kubernetes.api import Api, ApiError
from plumbline.kubernetes.doctor import Check, State, probe_spec
from plumbline.kubernetes.inventory import read_inventory
from plumbline.kubernetes.probe import FOLDER, MARK
from plumbline.model import Device

LIMIT_S = 45.0
POLL_S = 0.5
GANG_PROGRAMS = ("ssh", "sshd", "ssh-keygen", "mpirun")
"""What an image for groups of several nodes needs."""
PROGRAMS: Mapping[str, tuple[str, ...]] = {"fio": ("fio",)}
_OLD_SHARED_MEMORY_BYTES = 64 << 20


def probe_checks(api: Api, profile: ClusterProfile, results: Path, today: date) -> Iterator[Check]:
    """Run each image of the profile once and check what it says. `results` is the results store on this side."""
    held = lease.current(api, profile)
    if held is not None:
        yield Check(
            name="probes", state=State.WARN, found=f"run {held['run_id']} holds the cluster: no pod was started",
            mend=f"ask again after {held['until']}",
        )  # fmt: skip
        return
    idle = [node.name for node in read_inventory(api, profile, today) if node.unusable is None]
    if not idle:
        yield Check(name="probes", state=State.WARN, found="no idle node: images and volumes were not tried")
        return
    token = secrets.token_hex(3)
    names = sorted(profile.images)
    folder = results / FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    asked = [folder / f"{token}-{number}.ask" for number in range(len(names))]
    made: dict[str, str] = {}
    try:
        for number, name in enumerate(names):
            asked[number].write_text("seen?")
            made[name] = _start(api, profile, name, idle[number % len(idle)], f"{token}-{number}", token)
        yield from _answers(api, profile, made, folder, token)
    except ApiError as error:
        yield Check(name="probes", state=State.FAIL, found=str(error), mend="mend what the checks above say first")
    finally:
        for pod in made.values():
            _remove(api, f"{_folder(profile)}/{pod}")
        for path in [*asked, *folder.glob(f"{token}-*.json")]:
            path.unlink(missing_ok=True)


def _folder(profile: ClusterProfile) -> str:
    return f"/api/v1/namespaces/{settings_of(profile).namespace}/pods"


def _remove(api: Api, path: str) -> None:
    try:
        api.delete(path)
    except ApiError:
        return  # its deadline is a minute, and the reaper knows it


def _start(api: Api, profile: ClusterProfile, name: str, node: str, question: str, token: str) -> str:
    settings = settings_of(profile)
    one = probe_spec(profile, name, profile.images[name], [node], mark=token)
    pod = pods.batch_pod(profile.model_dump(mode="json"), f"doctor-{name}", [one], Path(settings.results.mount))
    command = [profile.python, "-m", "plumbline.kubernetes.probe", "--results", settings.results.mount]
    command += ["--token", question, "--programs", ",".join(_programs(name))]
    if settings.storage is not None and name != "launcher":
        command += ["--storage", profile.storage.directory]
    pod["spec"]["containers"][0]["command"] = command
    pod["spec"]["activeDeadlineSeconds"] = 60
    return str(api.create(_folder(profile), pod)["metadata"]["name"])


def _programs(name: str) -> Sequence[str]:
    return (*PROGRAMS.get(name, ()), *GANG_PROGRAMS)


def _answers(api: Api, profile: ClusterProfile, made: Mapping[str, str], folder: Path, token: str) -> Iterator[Check]:
    """Wait for the pods, at most LIMIT_S together, and judge what each says."""
    end = time.monotonic() + LIMIT_S
    waiting = dict(made)
    while waiting:
        for name, pod_name in list(waiting.items()):
            pod = api.get(f"{_folder(profile)}/{pod_name}")
            late = time.monotonic() > end
            if not (diagnosis.ended(pod) or diagnosis.hopeless(pod) or late):
                continue
            del waiting[name]
            said = _said(api, profile, pod_name) if diagnosis.phase(pod) == "Succeeded" else None
            if said is None:
                yield _no_answer(api, profile, name, pod, late=late)
                continue
            number = sorted(profile.images).index(name)
            yield from _judge(profile, name, said, (folder / f"{token}-{number}.json").is_file())
        time.sleep(POLL_S)


def _said(api: Api, profile: ClusterProfile, pod: str) -> dict[str, Any] | None:
    try:
        text = api.text(f"{_folder(profile)}/{pod}/log", {"container": pods.CONTAINER})
    except ApiError:
        return None
    for line in text.splitlines():
        if line.startswith(MARK):
            data = json.loads(line.removeprefix(MARK))
            return data if isinstance(data, dict) else None
    return None


def _no_answer(api: Api, profile: ClusterProfile, name: str, pod: Mapping[str, Any], *, late: bool) -> Check:
    _, reason = diagnosis.explain_pod(api, settings_of(profile).namespace, pod)
    if late and not diagnosis.ended(pod) and not diagnosis.hopeless(pod):
        return Check(
            name=f"image {name}", state=State.WARN, found=f"no answer within {LIMIT_S:g} s: {reason}",
            mend="a large image may still be on its way: ask again; otherwise kubectl describe the pod",
        )  # fmt: skip
    return Check(
        name=f"image {name}", state=State.FAIL, found=reason,
        mend=f"see images.{name}, image_mirror and image_pull_secrets; the image needs python at {profile.python} and "
        f"this package at {settings_of(profile).package}",
    )  # fmt: skip


def _judge(profile: ClusterProfile, name: str, said: Mapping[str, Any], seen_here: bool) -> Iterator[Check]:
    """Turn an answer into checks; only what is wrong, and one line for what is right."""
    settings = settings_of(profile)
    wrong = []
    if said["missing"]:
        few = [p for p in said["missing"] if p in PROGRAMS.get(name, ())]
        wrong.append(
            (State.FAIL if few else State.WARN, f"the image lacks {', '.join(said['missing'])}",
             "add them to the image" + ("" if few else "; without them only rungs of one node can be measured"))
        )  # fmt: skip
    if said["user"] is None:
        wrong.append((State.WARN, f"uid {settings.run_as_user} has no line in the image's passwd",
                      "sshd refuses such users: add it to the image, or change kubernetes.run_as_user"))  # fmt: skip
    if not said["sees_results"] or not seen_here or said["writes_results"]:
        how = said["writes_results"] or (
            "the pod does not see what this side wrote" if not said["sees_results"] else "this side does not see it"
        )
        wrong.append((State.FAIL, f"results volume: {how}",
                      f"`results` here and kubernetes.results ({settings.results.mount} in pods) must be one store, "
                      f"writable for uid {settings.run_as_user} (fs_group)"))  # fmt: skip
    if said["writes_storage"]:
        where = f"mount it at or above {profile.storage.directory}, writable for uid {settings.run_as_user}"
        wrong.append((State.FAIL, f"storage under test: {said['writes_storage']}", where))
    if profile.device is Device.GPU and said["gpus"] is not None and said["gpus"] != profile.accelerator.per_node:
        wrong.append((State.FAIL, f"{said['gpus']} of {profile.accelerator.per_node} GPUs answer in the pod",
                      f"nvidia-smi on {said['node']}; the container runtime must be NVIDIA's"))  # fmt: skip
    if settings.rdma is not None and settings.rdma.resource and not said["rdma_devices"]:
        wrong.append((State.FAIL, "no /dev/infiniband device in the pod", "see the RDMA device plugin"))
    if said["shared_memory_bytes"] is not None and said["shared_memory_bytes"] <= _OLD_SHARED_MEMORY_BYTES:
        wrong.append(
            (
                State.FAIL,
                "shared memory (/dev/shm) is 64 MiB or less",
                "an admission policy took the memory volume away",
            )
        )
    for state, found, mend in wrong:
        yield Check(name=f"image {name} on {said['node']}", state=state, found=found, mend=mend)
    if not wrong:
        yield Check(name=f"image {name} on {said['node']}", state=State.OK, found=f"runs, Python {said['python']}")
