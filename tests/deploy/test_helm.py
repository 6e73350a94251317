"""The chart: helm lints it, kubeconform judges what it makes, and each pod's configuration is one
that a run takes."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from meanstream.pipelines.options.agents_options import AgentsOptions
from meanstream.streaming.kafka.connection.kafka_location import KafkaLocation
from tests.pipelines.command_line import asks
from tests.servers.conftest import need

ROOT = Path(__file__).parents[2]
CHART = ROOT / "deploy" / "helm" / "meanstream"
RULES = ROOT / "docker" / "prometheus" / "rules"
MADE = dict(re.findall(r"(?m)^(\w+_VERSION) := (\S+)$", (ROOT / "Makefile").read_text()))
VERSION = MADE["KUBERNETES_VERSION"]
SERVERS = Path(os.environ.get("MEANSTREAM_SERVERS", Path.home() / ".cache" / "meanstream-servers"))
TOOLS = SERVERS / f"kubernetes-{VERSION}-helm-{MADE['HELM_VERSION']}"
KEY = "7c1e94b05fa3d2681be60c9d37f25a84"
VALUES: dict[str, Any] = {
    "replicas": 3,
    "source": "kafka://broker:9092/samples?group=delays",
    "sink": "kafka://broker:9092/estimates",
    "releases": "kafka://broker:9092/releases",
    "deadLetters": "kafka://broker:9092/dead-letters",
    "options": {
        "lower": -30,
        "upper": 120,
        "epsilon": 1,
        "delta": 1e-6,
        "id": "id",
        "refresh": "30s",
    },
    "secret": {"key": KEY},
    "kafka": {"configSecret": "broker-login"},
    "networkPolicy": {"brokers": [{"ipBlock": {"cidr": "10.0.0.0/8"}}]},
    "image": {"pullSecrets": ["registry"]},
}


def helm(folder: Path, values: dict[str, Any], *command: str) -> subprocess.CompletedProcess[str]:
    need(None if (TOOLS / ".complete").exists() else "no helm: make servers, with Go")
    place = folder / "values.yaml"
    place.write_text(yaml.safe_dump(values))
    typed = [TOOLS / "helm", *command, CHART, "--values", place, "--kube-version", VERSION]
    return subprocess.run(typed, capture_output=True, text=True, check=False)


def render(folder: Path, values: dict[str, Any]) -> str:
    ran = helm(folder, values, "template", "delays")
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def judge(folder: Path, text: str) -> subprocess.CompletedProcess[str]:
    (folder / "made.yaml").write_text(text)
    schemas = TOOLS / "schemas" / "{{.ResourceKind}}{{.KindSuffix}}.json"
    typed = [
        TOOLS / "kubeconform",
        "-strict",
        "-output",
        "json",
        "-summary",
        "-schema-location",
        schemas,
    ]
    return subprocess.run(
        [*typed, folder / "made.yaml"], capture_output=True, text=True, check=False
    )


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> str:
    return render(tmp_path_factory.mktemp("helm"), VALUES)


@pytest.fixture(scope="module")
def made(text: str) -> dict[str, Any]:
    return {one["kind"]: one for one in yaml.safe_load_all(text)}


def test_helm_lints_it(tmp_path: Path) -> None:
    ran = helm(tmp_path, VALUES, "lint", "--strict")
    assert (ran.returncode, "0 chart(s) failed" in ran.stdout) == (0, True), ran.stdout


def test_kubernetes_takes_what_it_makes_and_would_not_take_less(tmp_path: Path, text: str) -> None:
    least = {name: VALUES[name] for name in ("source", "sink", "releases", "options", "secret")}
    for found in (text, render(tmp_path, least)):
        ran = judge(tmp_path, found)
        summary = json.loads(ran.stdout)["summary"]
        assert (ran.returncode, summary) == (
            0,
            {"valid": 9, "invalid": 0, "errors": 0, "skipped": 0},
        ), ran.stdout
    for good, bad in (
        ("podManagementPolicy:", "podManagement:"),
        ("maxUnavailable: 1", "maxUnavailable: [1]"),
        ("jobLabel:", "jobLable:"),
        ("expr: meanstream_ready == 0", "expression: meanstream_ready == 0"),
    ):
        assert good in text
        ran = judge(tmp_path, text.replace(good, bad))
        assert (ran.returncode, json.loads(ran.stdout)["summary"]["invalid"]) == (1, 1), bad


def test_every_pod_has_its_own_partitions_and_a_configuration_that_a_run_takes(
    tmp_path: Path, made: dict[str, Any]
) -> None:
    configs = made["ConfigMap"]["data"]
    pods = made["StatefulSet"]["spec"]["template"]["spec"]["containers"][0]
    assert pods["args"][2] == "--config=/etc/meanstream/config/$(POD_INDEX).yaml"
    assert "pod-index" in pods["env"][0]["valueFrom"]["fieldRef"]["fieldPath"]
    assert list(configs) == ["0.yaml", "1.yaml", "2.yaml"]
    owned, names = [], set()
    (tmp_path / "noise.key").write_text(KEY)
    (tmp_path / "client.yaml").write_text("client.id: delays\n")
    for number, text in configs.items():
        config = text
        for there in ("/etc/meanstream/secret", "/etc/meanstream/kafka", "/var/lib/meanstream"):
            assert there in config
            config = config.replace(there, str(tmp_path))
        found = yaml.safe_load(config)
        owned += sorted(KafkaLocation.parse(found["source"]).partitions or ())
        names.add(found["name"])
        place = tmp_path / number
        place.write_text(config)
        explained = asks("explain", "agents", "--config", str(place), "--json")
        assert explained.code == 0, explained.err
    assert owned == list(range(12))
    assert len(names) == 3
    known = set(AgentsOptions.__dataclass_fields__)
    assert set(found) <= known


def test_limits_rights_and_tags(made: dict[str, Any]) -> None:
    spec = made["StatefulSet"]["spec"]
    pod = spec["template"]["spec"]
    [engine] = pod["containers"]
    for part in ("requests", "limits"):
        assert set(engine["resources"][part]) == {"cpu", "memory", "ephemeral-storage"}
    assert all(
        "sizeLimit" in volume["emptyDir"] for volume in pod["volumes"] if "emptyDir" in volume
    )
    assert engine["image"] == "meanstream-engine:0.3.0"
    assert engine["securityContext"]["readOnlyRootFilesystem"]
    assert engine["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert pod["securityContext"]["runAsUser"] == 10001
    assert not pod["automountServiceAccountToken"]
    assert spec["persistentVolumeClaimRetentionPolicy"] == {
        "whenDeleted": "Retain",
        "whenScaled": "Retain",
    }
    assert made["Secret"]["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep"
    written = [mount["mountPath"] for mount in engine["volumeMounts"] if not mount.get("readOnly")]
    assert written == ["/var/lib/meanstream", "/tmp"]  # noqa: S108


def test_alerts_are_those_of_the_rules_files(made: dict[str, Any]) -> None:
    groups = [
        group
        for name in ("recording", "alerts")
        for group in yaml.safe_load((RULES / f"{name}.yml").read_text())["groups"]
    ]
    assert made["PrometheusRule"]["spec"]["groups"] == groups
    assert made["ServiceMonitor"]["spec"]["jobLabel"] == "app.kubernetes.io/name"
    assert (
        made["Service"]["metadata"]["labels"]["app.kubernetes.io/name"] == "meanstream"
    )  # the rules' job


def test_a_digest_takes_the_place_of_a_tag(tmp_path: Path) -> None:
    digest = f"sha256:{64 * 'a'}"
    made = render(
        tmp_path, {**VALUES, "image": {"repository": "registry.example/engine", "digest": digest}}
    )
    assert f"image: registry.example/engine@{digest}\n" in made


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"source": ""}, "source must be given"),
        ({"source": "kafka://b:9092/s?partitions=0"}, "source must name no partitions"),
        ({"options": {"lower": 0, "upper": 1, "epsilon": 1}}, "options.delta must be given"),
        ({"options": {**VALUES["options"], "store": "x.db"}}, "options.store must be left out"),
        ({"secret": {}}, "secret.existing must be given"),
        ({"secret": {"existing": "a", "key": KEY}}, "secret.key must be left out"),
        ({"image": {"tag": "latest"}}, "image.tag must be an exact tag"),
        ({"image": {"digest": "sha256:1"}}, "image.digest must be"),
        ({"partitionsPerPod": 0}, "partitionsPerPod must be at least 1"),
    ],
)
def test_what_cannot_run_is_refused(tmp_path: Path, changes: dict[str, Any], said: str) -> None:
    ran = helm(tmp_path, {**VALUES, **changes}, "template", "delays")
    assert (ran.returncode, said in ran.stderr) == (1, True), ran.stderr
