"""docker/helm: manifests are valid, rights are those that the code uses, and values fit the image and the manifests."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from packaging.version import Version

from plumbline.clusters.kubernetes import Kubernetes
from plumbline.clusters.profile import load_profile
from plumbline.execution import pods
from plumbline.kubernetes import doctor
from tests.docker.images import DOCKER, ROOT, copied, environment
from tests.kubernetes.fake import FakeCluster
from tests.kubernetes.profiles import plain, spec
from tests.kubernetes.runs import api_of, finish, launches, log, outcomes, prepare, profile, records, start

FOLDER = DOCKER / "helm" / "manifests"
NEWEST = sorted({Version(v) for v in kubernetes_validate.utils.all_versions() if not v.endswith("strict")})[-3:]
FILES = sorted(path for path in FOLDER.glob("*.yaml") if path.name != "kustomization.yaml")
OBJECTS: list[dict[str, Any]] = [one for path in FILES for one in yaml.safe_load_all(path.read_text())]
VALUES: dict[str, Any] = yaml.safe_load((DOCKER / "helm" / "values.yaml").read_text())
PROFILE = load_profile("hgx-h100")
EVIDENCE = Path("/mnt/results/c/s/r/evidence")
Right = tuple[str, str, str]


def name_of(one: dict[str, Any]) -> str:
    return f"{one['kind']}/{one['metadata'].get('namespace', '')}/{one['metadata']['name']}"


def find(kind: str, name: str, namespace: str | None = None) -> dict[str, Any]:
    [one] = [
        one for one in OBJECTS
        if one["kind"] == kind and one["metadata"]["name"] == name
        and namespace in (None, one["metadata"].get("namespace"))
    ]  # fmt: skip
    return one


# -- manifests -----------------------------------------------------------------------------------------------------


def test_three_versions_are_checked() -> None:
    assert len(NEWEST) == 3


@pytest.mark.parametrize("version", [str(version) for version in NEWEST])
@pytest.mark.parametrize("one", OBJECTS, ids=name_of)
def test_a_manifest_is_valid(one: dict[str, Any], version: str) -> None:
    kubernetes_validate.validate(one, version, strict=True)


def test_a_wrong_manifest_would_be_seen() -> None:
    wrong = {**find("PriorityClass", "plumbline-nightly"), "valeu": 1}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(wrong, str(NEWEST[-1]), strict=True)


def test_kustomization_names_every_file_and_pins_every_image() -> None:
    data = yaml.safe_load((FOLDER / "kustomization.yaml").read_text())
    assert set(data["resources"]) == {path.name for path in FILES}
    used = {c["image"] for one in OBJECTS if one["kind"] == "Deployment" for c in containers(one)}
    assert {image["name"] for image in data["images"]} == used
    assert all(re.fullmatch(r"sha256:[0-9a-f]{64}", image["digest"]) for image in data["images"])


@pytest.mark.skipif(not shutil.which("kubectl"), reason="no kubectl")
def test_kubectl_renders_them() -> None:
    done = subprocess.run(["kubectl", "kustomize", str(FOLDER)], capture_output=True, text=True, check=True)
    assert sorted(map(name_of, yaml.safe_load_all(done.stdout))) == sorted(map(name_of, OBJECTS))


def test_objects_lie_in_the_two_namespaces() -> None:
    spaces = {one["metadata"]["name"] for one in OBJECTS if one["kind"] == "Namespace"}
    assert spaces == {"airflow", Kubernetes.model_fields["namespace"].default}
    cluster_wide = {"Namespace", "PriorityClass", "PersistentVolume", "ClusterRole", "ClusterRoleBinding"}
    for one in OBJECTS:
        assert one["kind"] in cluster_wide or one["metadata"]["namespace"] in spaces, name_of(one)


def test_no_secret_is_among_them() -> None:
    assert "Secret" not in {one["kind"] for one in OBJECTS}


def containers(one: dict[str, Any]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = one["spec"]["template"]["spec"]["containers"]
    return found


def test_mlflow_runs_without_privileges_and_finds_what_it_names() -> None:
    deployment = find("Deployment", "mlflow")
    pod = deployment["spec"]["template"]["spec"]
    assert pod["automountServiceAccountToken"] is False
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    [container] = containers(deployment)
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]},
    }  # fmt: skip
    assert container["resources"]["limits"]["memory"]
    claims = [v["persistentVolumeClaim"]["claimName"] for v in pod["volumes"] if "persistentVolumeClaim" in v]
    assert all(find("PersistentVolumeClaim", claim, "airflow") for claim in claims)
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    for selector in (
        deployment["spec"]["selector"]["matchLabels"],
        find("Service", "mlflow")["spec"]["selector"],
        find("NetworkPolicy", "mlflow")["spec"]["podSelector"]["matchLabels"],
    ):
        assert selector.items() <= labels.items()
    assert find("Service", "mlflow")["spec"]["ports"][0]["port"] == container["ports"][0]["containerPort"] == 5000
    for variable in container["env"]:
        assert "secretKeyRef" in variable["valueFrom"]


# -- rights --------------------------------------------------------------------------------------------------------


def rights(role: dict[str, Any]) -> set[Right]:
    return {
        (group, resource, verb)
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def listed(wanted: tuple[tuple[str, str, str], ...]) -> set[Right]:
    return {(group, resource, verb) for group, resource, verbs in wanted for verb in verbs.split()}


def test_rights_are_the_lists_that_the_doctor_asks_for() -> None:
    assert rights(find("Role", "plumbline-launcher")) == listed(doctor.LAUNCHER_VERBS)
    assert rights(find("ClusterRole", "plumbline-launcher")) == listed(doctor.LAUNCHER_CLUSTER_VERBS)
    # Airflow's side asks the API to admit a launcher's pod and Job (dry run), so it needs the launcher's rights too.
    assert rights(find("Role", "plumbline-airflow")) == listed(doctor.OWN_VERBS) | listed(doctor.LAUNCHER_VERBS)
    assert rights(find("ClusterRole", "plumbline-inventory")) == listed(doctor.CLUSTER_VERBS)


def test_nobody_may_exec_read_secrets_or_do_everything() -> None:
    for one in OBJECTS:
        if one["kind"] in ("Role", "ClusterRole"):
            for _, resource, verb in rights(one):
                assert "*" not in (resource, verb)
                assert resource not in ("secrets", "pods/exec", "pods/attach", "configmaps", "serviceaccounts")


def test_rights_are_bound_to_the_accounts_that_use_them() -> None:
    account = Kubernetes.model_fields["service_account"].default
    namespace = Kubernetes.model_fields["namespace"].default
    assert find("ServiceAccount", account, namespace)["automountServiceAccountToken"] is False
    bound = {
        one["roleRef"]["name"]: [(s["namespace"], s["name"]) for s in one["subjects"]]
        for one in OBJECTS if one["kind"].endswith("RoleBinding")
    }  # fmt: skip
    assert bound == {
        "plumbline-launcher": [(namespace, account)],
        "plumbline-airflow": [("airflow", "airflow-worker")],
        "plumbline-inventory": [("airflow", "airflow-worker")],
    }
    launcher = pods.batch_pod(plain(), "b", [spec(["n1", "n2"])], EVIDENCE)["spec"]
    assert (launcher["serviceAccountName"], launcher["automountServiceAccountToken"]) == (account, True)


PATH = re.compile(
    r"^/(?:api/v1|apis/(?P<group>[^/]+)/v1(?:beta1)?)(?:/namespaces/(?P<space>[^/?]+))?"
    r"/(?P<resource>[^/?]+)(?:/(?P<name>[^/?]+))?(?:/(?P<sub>[^/?]+))?(?:\?(?P<query>.*))?$"
)
VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}


def asked(cluster: FakeCluster) -> set[tuple[str, Right]]:
    """Give what the requests so far needed: namespace ('' for the cluster) and right."""
    found = set()
    for _, method, path in cluster.api.requests:
        match = PATH.match(path)
        if match is None:
            continue  # /version and the like need no right
        resource = match["resource"] + (f"/{match['sub']}" if match["sub"] else "")
        single = "get" if match["name"] else "watch" if "watch=" in (match["query"] or "") else "list"
        found.add((match["space"] or "", (match["group"] or "", resource, VERBS.get(method, single))))
    return found


@pytest.mark.parametrize("gpus", ["8", "7"])
def test_a_launchers_requests_need_no_more_than_its_role(gpus: str, tmp_path: Path) -> None:
    """One that works, and one that must explain why a worker does not start."""
    script = "echo rank $OMPI_COMM_WORLD_RANK"
    with FakeCluster(tmp_path / "cluster", nodes=["n1", "n2"]) as cluster:
        cluster.store.change(
            ("nodes", "", "n1"), lambda node: node["status"]["allocatable"].update({"nvidia.com/gpu": gpus})
        )
        patient = {"start_s": 120, "orphan_s": 60, "unschedulable_s": 60 if gpus == "8" else 1}
        run = prepare(tmp_path / "results", launches([["n1", "n2"]], script), {"kubernetes": {"waits": patient}})
        name = start(cluster, run)
        cluster.api.requests.clear()
        assert finish(cluster, name, 180) == 0, log(cluster, name)
        used = asked(cluster)
    namespace = Kubernetes.model_fields["namespace"].default
    assert {space for space, _ in used} == {namespace, *([] if gpus == "8" else [""])}
    assert ("batch", "jobs", "create") in {right for _, right in used}
    expected = "exited" if gpus == "8" else "infrastructure:missing_gpu"
    assert outcomes(run) == {"nccl_tests-n2-g0-r1.a1": expected}, [one["reason"] for one in records(run).values()]
    assert {right for space, right in used if space} <= rights(find("Role", "plumbline-launcher"))
    assert {right for space, right in used if not space} <= rights(find("ClusterRole", "plumbline-launcher"))


READ_IF_ALLOWED = {
    ("", "namespaces", "get"), ("", "serviceaccounts", "get"), ("", "persistentvolumeclaims", "get"),
    ("", "resourcequotas", "list"), ("scheduling.k8s.io", "priorityclasses", "get"),
    ("authorization.k8s.io", "localsubjectaccessreviews", "create"),
}  # fmt: skip
"""What the doctor looks at besides, and warns where it may not: good to have for a person, needed for no run."""
EVERYONE = {("authorization.k8s.io", "selfsubjectaccessreviews", "create")}
"""Kubernetes lets every account ask what it may do itself (system:basic-user)."""


def test_the_quick_checks_of_a_run_need_no_more_than_airflows_roles(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PLUMBLINE_RESULTS", str(tmp_path))
    from datetime import date

    with FakeCluster(tmp_path / "cluster", nodes=["n1"]) as cluster:
        checks = list(doctor.quick_checks(api_of(cluster), profile(), date(2026, 1, 1)))
        used = {right for _, right in asked(cluster)}
    assert len(checks) > 5
    allowed = rights(find("Role", "plumbline-airflow")) | rights(find("ClusterRole", "plumbline-inventory"))
    assert used <= allowed | READ_IF_ALLOWED | EVERYONE


# -- what manifests and profile say of each other ------------------------------------------------------------------


def test_the_profiles_objects_are_there() -> None:
    settings = PROFILE.kubernetes
    assert settings is not None
    priority = find("PriorityClass", str(settings.priority_class))
    assert priority["value"] < 0
    assert (priority["preemptionPolicy"], priority["globalDefault"]) == ("Never", False)
    for volume in (settings.results, settings.storage):
        assert volume is not None
        claim = find("PersistentVolumeClaim", str(volume.claim), settings.namespace)
        assert claim["spec"]["accessModes"] == ["ReadWriteMany"]


def test_both_sides_mount_one_results_store() -> None:
    volumes = [one for one in OBJECTS if one["kind"] == "PersistentVolume"]
    assert len(volumes) == 2
    assert volumes[0]["spec"]["nfs"] == volumes[1]["spec"]["nfs"]
    for volume in volumes:
        reference = volume["spec"]["claimRef"]
        claim = find("PersistentVolumeClaim", reference["name"], reference["namespace"])
        assert claim["spec"]["volumeName"] == volume["metadata"]["name"]
        assert volume["spec"]["persistentVolumeReclaimPolicy"] == "Retain"


def policies(labels: dict[str, str], direction: str) -> Iterator[dict[str, Any]]:
    """Give the policies of namespace plumbline that select a pod with these labels."""
    for one in OBJECTS:
        if one["kind"] == "NetworkPolicy" and one["metadata"]["namespace"] == "plumbline":
            wanted = one["spec"]["podSelector"].get("matchLabels", {})
            if direction in one["spec"]["policyTypes"] and wanted.items() <= labels.items():
                yield one


def test_only_launchers_reach_the_api_and_workers_reach_each_other() -> None:
    launcher = pods.batch_pod(plain(), "b", [spec(["n1", "n2"])], EVIDENCE)["metadata"]["labels"]
    single = pods.batch_pod(plain(), "b", [spec(["n1"])], EVIDENCE)["metadata"]["labels"]
    job = pods.worker_job(plain(), "b", spec(["n1", "n2"]), 1, EVIDENCE, ("p", "u"), "key")
    worker = job["spec"]["template"]["metadata"]["labels"]

    def peers(labels: dict[str, str]) -> list[dict[str, Any]]:
        found = (
            peer for one in policies(labels, "Egress") for rule in one["spec"].get("egress", []) for peer in rule["to"]
        )
        return list(found)

    assert any("ipBlock" in peer for peer in peers(launcher))
    for labels in (single, worker):
        assert not any("ipBlock" in peer for peer in peers(labels))
        for other in (launcher, worker):
            assert any(selects(peer, other) for peer in peers(labels))
            sources = [
                peer for one in policies(labels, "Ingress")
                for rule in one["spec"].get("ingress", []) for peer in rule["from"]
            ]  # fmt: skip
            assert any(selects(peer, other) for peer in sources)
    assert list(policies({"some": "pod"}, "Ingress")) == [find("NetworkPolicy", "plumbline-default")]


def selects(peer: dict[str, Any], labels: dict[str, str]) -> bool:
    wanted = peer.get("podSelector", {}).get("matchLabels")
    return bool(wanted) and wanted.items() <= labels.items()


def test_pods_without_rdma_meet_the_restricted_standard() -> None:
    """As namespaces.yaml says. Source: https://kubernetes.io/docs/concepts/security/pod-security-standards/."""
    found = [
        pods.batch_pod(plain(), "b", [spec(["n1"])], EVIDENCE),
        pods.batch_pod(plain(), "b", [spec(["n1", "n2"])], EVIDENCE),
        pods.worker_job(plain(), "b", spec(["n1", "n2"]), 1, EVIDENCE, ("p", "u"), "key")["spec"]["template"],
    ]
    for pod in (one["spec"] for one in found):
        assert not {"hostNetwork", "hostPID", "hostIPC"} & set(pod)
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["securityContext"]["seccompProfile"]["type"] == "RuntimeDefault"
        for volume in pod["volumes"]:
            assert set(volume) - {"name"} <= {"emptyDir", "persistentVolumeClaim"}
        for container in pod["containers"]:
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]},
            }  # fmt: skip


# -- values of the chart -------------------------------------------------------------------------------------------


def test_values_fit_the_image_and_name_secrets_only() -> None:
    pins = dict(line.split("==") for line in (ROOT / "requirements.txt").read_text().splitlines() if "==" in line)
    assert VALUES["airflowVersion"] == pins["apache-airflow"]
    assert VALUES["executor"] == "KubernetesExecutor"
    image = VALUES["images"]["airflow"]
    assert image["tag"] is None
    assert re.fullmatch(r"sha256:[0-9a-f]{64}", image["digest"])
    assert {place for _, place in copied("airflow")} >= {"/opt/airflow/dags", "/opt/airflow/plugins"}
    assert environment("airflow")["PLUMBLINE_HOME"] == "/opt/plumbline"
    for name in ("fernetKeySecretName", "apiSecretKeySecretName", "jwtSecretName"):
        assert VALUES[name].startswith("airflow-")
    assert "metadataSecretName" in VALUES["data"]
    assert VALUES["postgresql"] == {"enabled": False}
    assert VALUES["createUserJob"]["defaultUser"] == {
        "enabled": False
    }  # the chart would make admin with password admin


def test_values_run_airflow_as_the_user_of_the_pods() -> None:
    user = Kubernetes.model_fields["run_as_user"].default
    assert VALUES["uid"] == user
    assert VALUES["securityContexts"]["pod"]["runAsUser"] == user
    assert VALUES["securityContexts"]["pod"]["runAsNonRoot"] is True


def test_values_mount_what_manifests_make() -> None:
    claims = [v["persistentVolumeClaim"]["claimName"] for v in VALUES["volumes"] if "persistentVolumeClaim" in v]
    for claim in (*claims, VALUES["logs"]["persistence"]["existingClaim"]):
        assert find("PersistentVolumeClaim", claim, "airflow")["spec"]["accessModes"] == ["ReadWriteMany"]
    mounts = {mount["name"]: mount["mountPath"] for mount in VALUES["volumeMounts"]}
    assert set(mounts) == {volume["name"] for volume in VALUES["volumes"]}
    variables = {one["name"]: one["value"] for one in VALUES["env"]}
    assert variables["PLUMBLINE_RESULTS"] == mounts["plumbline-results"] == PROFILE.results
    assert variables["PLUMBLINE_PROFILES"] == mounts["plumbline-profiles"]
    server = VALUES["apiServer"]
    assert server["extraVolumes"][0]["name"] == server["extraVolumeMounts"][0]["name"]
    copied_from = re.search(r"cp (\S+) (\S+);", server["args"][-1])
    assert copied_from is not None
    assert copied_from[1].startswith(server["extraVolumeMounts"][0]["mountPath"] + "/")
    assert copied_from[2] == VALUES["config"]["core"]["simple_auth_manager_passwords_file"]
    service = find("Service", "mlflow")["metadata"]
    assert variables["MLFLOW_TRACKING_URI"] == f"http://{service['name']}.{service['namespace']}:5000"
    [mlflow] = containers(find("Deployment", "mlflow"))
    assert any("mlflow.airflow:5000" in argument for argument in mlflow["args"] if "allowed-hosts" in argument)


def test_the_release_and_its_version_are_the_same_everywhere() -> None:
    text = (DOCKER / "helm" / "values.yaml").read_text()
    version = re.search(r"--version (\S+)", text)
    assert version is not None
    deployment = (ROOT / "docs" / "deployment.md").read_text()
    assert f"--version {version[1]}" in deployment
    assert "install airflow apache-airflow/airflow" in text
    assert "install airflow apache-airflow/airflow" in deployment
