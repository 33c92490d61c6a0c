"""The files of cluster/ are valid, say the same thing, and are short."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from importlib import metadata, resources
from pathlib import Path
from typing import Any

import dask
import jsonschema
import kubernetes_validate
import pytest
import yaml

from tests.cluster.recipes import CLUSTER, make_certs

ROOT = CLUSTER.parent
MANIFESTS = sorted((CLUSTER / "kubernetes").glob("*.yaml"))


def documents(path: Path) -> list[dict[str, Any]]:
    return [found for found in yaml.safe_load_all(path.read_text()) if found]


def crd(kind: str) -> dict[str, Any]:
    """Return the schema of a resource of the operator, which refuses fields that it does not know."""
    name = f"dask_kubernetes/operator/deployment/helm/dask-kubernetes-operator/crds/{kind.lower()}.yaml"
    text = Path(str(metadata.distribution("dask-kubernetes").locate_file(name))).read_text()
    definition = yaml.load(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    assert definition["spec"]["names"]["kind"] == kind
    schema: dict[str, Any] = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    return closed(schema)


def closed(schema: Any) -> Any:
    """Return an OpenAPI schema as JSON schema: unknown fields are refused, and int-or-string is what it says."""
    if isinstance(schema, list):
        return [closed(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    made = {key: closed(value) for key, value in schema.items()}
    if schema.get("x-kubernetes-int-or-string"):
        made.pop("type", None)
    elif isinstance(schema.get("properties"), dict) and not schema.get("x-kubernetes-preserve-unknown-fields"):
        made.setdefault("additionalProperties", False)
    return made


def check_resource(found: dict[str, Any]) -> None:
    assert set(found) == {"apiVersion", "kind", "metadata", "spec"}  # the schema has the last alone
    assert found["apiVersion"] == "kubernetes.dask.org/v1"
    jsonschema.validate({"spec": found["spec"]}, crd(found["kind"]))


def pods(spec: Any) -> list[dict[str, Any]]:
    """Return the specifications of all pods inside of a resource of the operator."""
    if not isinstance(spec, dict):
        return []
    own = [spec] if "containers" in spec else []
    return own + [pod for value in spec.values() for pod in pods(value)]


def check_pod(spec: dict[str, Any]) -> None:
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "spec": spec}
    kubernetes_validate.validate(pod, kubernetes_validate.latest_version(), strict=True)


@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: path.name)
def test_manifests_are_what_kubernetes_and_the_operator_take(path: Path) -> None:
    found = documents(path)
    assert found
    for document in found:
        if document["apiVersion"].startswith("kubernetes.dask.org"):
            check_resource(document)
            inside = pods(document["spec"])
            assert len(inside) == (2 if document["kind"] == "DaskCluster" else 3)
            for pod in inside:
                check_pod(pod)
        else:
            kubernetes_validate.validate(document, kubernetes_validate.latest_version(), strict=True)


def test_the_checks_would_notice() -> None:
    (good,) = documents(CLUSTER / "kubernetes" / "cluster.yaml")
    bad = json.loads(json.dumps(good))
    bad["spec"]["worker"]["replica"] = 3
    with pytest.raises(jsonschema.ValidationError, match="replica"):
        check_resource(bad)
    bad = json.loads(json.dumps(pods(good["spec"])[0]))
    bad["containers"][0]["memory"] = "4Gi"
    with pytest.raises(kubernetes_validate.ValidationError, match="memory"):
        check_pod(bad)
    with pytest.raises(jsonschema.ValidationError, match="comand"):
        check_compose({"services": {"worker": {"image": "cksc", "comand": []}}})


def test_pods_speak_tls_to_the_service_of_their_own_cluster() -> None:
    for name, cluster in (("cluster.yaml", "cksc"), ("job.yaml", "cksc-job")):
        text = (CLUSTER / "kubernetes" / name).read_text()
        (document,) = documents(CLUSTER / "kubernetes" / name)
        assert document["metadata"]["name"] == cluster
        assert set(re.findall(r"(\w+)://([\w-]+):8786", text)) == {("tls", f"{cluster}-scheduler")}
        assert '--protocol, tls, --port, "8786", --dashboard-address, "127.0.0.1:8787"' in text


def check_compose(found: dict[str, Any]) -> None:
    schema = resources.files("check_jsonschema.builtin_schemas.vendor").joinpath("compose-spec.json").read_text()
    jsonschema.validate(found, json.loads(schema))


def test_compose_files_keep_to_the_compose_specification() -> None:
    plain, tls = (documents(CLUSTER / "docker" / name)[0] for name in ("compose.yaml", "tls.yaml"))
    check_compose(plain)
    check_compose(tls)
    assert set(tls["services"]) == set(plain["services"])
    assert all(port.startswith("127.0.0.1:") for port in plain["services"]["scheduler"]["ports"])
    assert all(service["environment"] == tls["x-tls"]["environment"] for service in tls["services"].values())
    assert not any("ca-key" in volume for volume in tls["x-tls"]["volumes"])  # it would let in anybody


def test_every_form_of_tls_sets_what_make_certs_prints(tmp_path: Path) -> None:
    printed = {name: Path(value).name for name, value in make_certs(tmp_path / "certs").items()}
    (tls,) = documents(CLUSTER / "docker" / "tls.yaml")
    (config,) = (found for found in documents(CLUSTER / "kubernetes" / "shared.yaml") if found["kind"] == "ConfigMap")
    for settings in (tls["x-tls"]["environment"], config["data"]):
        given = {name: Path(value).name for name, value in settings.items() if name.startswith("DASK_DISTRIBUTED")}
        assert given == printed


def test_the_image_is_built_by_the_first_command_of_the_readme() -> None:
    (command,) = re.findall(r"^python3 -m venv .*run_dyntex\.py$", (ROOT / "README.md").read_text(), re.MULTILINE)
    made, installed, run = command.split(" && ")
    lines = (CLUSTER / "docker" / "Dockerfile").read_text().splitlines()
    assert f"RUN {made} && {installed}" in lines
    assert f"CMD {run} --store /data/dyntex" in lines
    for line in lines:
        if line.startswith("COPY"):
            assert all((ROOT / name).exists() for name in line.split()[1:-1]), line


def test_the_shared_settings_are_those_that_were_meant() -> None:
    settings = yaml.safe_load((CLUSTER / "dask.yaml").read_text())
    with dask.config.set(settings):
        assert dask.config.get("distributed.comm.timeouts.tcp") == "15s"
        assert dask.config.get("distributed.scheduler.worker-ttl") == "60s"
        environment = dask.config.get("distributed.nanny.pre-spawn-environ")
    for name in ("OMP", "OPENBLAS", "MKL", "NUMBA"):
        assert environment[f"{name}_NUM_THREADS"] == 1
    slurm = settings["jobqueue"]["slurm"]
    assert slurm["scheduler-options"]["dashboard_address"].startswith("127.0.0.1:")
    extra = slurm["worker-extra-args"]
    life, stagger = (
        int(extra[extra.index(name) + 1].removesuffix("m")) for name in ("--lifetime", "--lifetime-stagger")
    )
    hours, minutes, _ = map(int, slurm["walltime"].split(":"))
    assert 0 < stagger < life
    assert life + stagger < 60 * hours + minutes


def test_the_page_names_files_that_are_there_and_all_of_them() -> None:
    page = (CLUSTER / "README.md").read_text()
    named = set(re.findall(r"cluster/([\w./-]+\w)", page)) - {"README.md"}
    assert all((CLUSTER / name).exists() for name in named), named
    files = {str(path.relative_to(CLUSTER)) for path in CLUSTER.rglob("*") if path.is_file() and path.suffix != ".pyc"}
    assert files - named == {"README.md"}
    headings = {f"#{name.lower()}" for name in re.findall(r"^## (\w+)$", page, re.MULTILINE)}
    assert set(re.findall(r"\]\((#\w+)\)", page)) <= headings


@pytest.mark.parametrize("name", ["start_ssh.py", "start_slurm.py"])
def test_scripts_are_thin_and_explain_themselves(name: str) -> None:
    assert len((CLUSTER / name).read_text().splitlines()) <= 60
    done = subprocess.run([sys.executable, CLUSTER / name, "--help"], capture_output=True, text=True, check=True)
    assert f"DASK_CONFIG=cluster/dask.yaml python cluster/{name}" in done.stdout
    assert "--tls" in done.stdout
