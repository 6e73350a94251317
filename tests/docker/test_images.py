"""Images and compose file as far as they can be checked without a registry and a daemon: see
docker/README.md."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from meanstream.streaming.store.secret_source import SECRET_FILE_VARIABLE
from tests.servers.support.broker import KAFKA_VERSION

ROOT = Path(__file__).parents[2]
DOCKER = ROOT / "docker"
DOCKERFILES = sorted(DOCKER.glob("*.Dockerfile"))
COMPOSE = yaml.safe_load((DOCKER / "compose.yaml").read_text())
SERVICES: dict[str, Any] = COMPOSE["services"]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
OURS = {"engine", "rounds", "producer", "topics", "beam-worker"}
ONE_SHOT = {"topics", "flink-state"}
BIN = Path(sys.executable).parent


def lint(tool: str, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [BIN / tool, *map(str, arguments)], capture_output=True, text=True, check=False
    )


def locked(name: str) -> dict[str, str]:
    """Packages of a lock file and their versions (the last, where there is one per Python)."""
    text = (ROOT / "requirements" / f"{name}.lock").read_text()
    return dict(re.findall(r"(?m)^([a-z0-9][a-z0-9._-]*)==([^ ;\\]+)", text))


def test_hadolint_finds_nothing_in_the_dockerfiles_and_something_in_spoiled_ones(
    tmp_path: Path,
) -> None:
    assert len(DOCKERFILES) == 2
    ran = lint("hadolint", *DOCKERFILES)
    assert ran.returncode == 0, ran.stdout
    spoiled = tmp_path / "Dockerfile"
    text = DOCKERFILES[1].read_text()
    for good, bad in (
        ("FROM ${PYTHON} AS", "FROM python:latest AS"),
        ("USER 10001:10001", "USER root"),
        ("/src\n", "src\n"),
    ):
        assert good in text
        spoiled.write_text(text.replace(good, bad))
        assert lint("hadolint", spoiled).returncode != 0, f"{bad} was not found"


def test_the_compose_file_is_as_its_specification_says(tmp_path: Path) -> None:
    check = ("check-jsonschema", "--builtin-schema", "vendor.compose-spec")
    ran = lint(*check, *sorted(DOCKER.glob("compose*.yaml")))
    assert ran.returncode == 0, ran.stdout
    spoiled = tmp_path / "compose.yaml"
    text = (DOCKER / "compose.yaml").read_text()
    for good, bad in (
        ("healthcheck:", "healthchek:"),
        ("service_healthy", "healthy"),
        ("read_only: true", "read_only: 7"),
    ):
        assert good in text
        spoiled.write_text(text.replace(good, bad, 1))
        assert lint(*check, spoiled).returncode != 0, f"{bad} was not found"


def instructions(path: Path, name: str) -> list[str]:
    text = re.sub(r"(?m)^\s*#.*\n", "", path.read_text()).replace("\\\n", " ")
    return [
        line.removeprefix(f"{name} ") for line in text.splitlines() if line.startswith(f"{name} ")
    ]


@pytest.mark.parametrize("path", DOCKERFILES, ids=lambda path: path.stem)
def test_what_a_dockerfile_copies_is_there_and_not_ignored(path: Path) -> None:
    ignored = (ROOT / ".dockerignore").read_text().splitlines()
    assert "*" in ignored
    taken = {line[1:] for line in ignored if line.startswith("!")}
    copied = [
        word
        for line in instructions(path, "COPY")
        if "--from" not in line
        for word in line.split()[:-1]
    ]
    assert {"meanstream", "pyproject.toml", "README.md", "LICENSE"} < set(copied)
    for name in copied:
        assert (ROOT / name).exists()
        assert name in taken, f"{name} is not sent to the builder"
    used = {
        name
        for file in DOCKERFILES
        for line in instructions(file, "COPY")
        for name in line.split()[:-1]
    }
    assert taken <= used, "more than the images need is sent to the builder"
    assert not any("secret" in name or name.endswith(".db") for name in taken)


@pytest.mark.parametrize("path", DOCKERFILES, ids=lambda path: path.stem)
def test_an_image_is_locked_not_root_and_starts_no_shell(path: Path) -> None:
    runs = " ".join(instructions(path, "RUN"))
    installs = [run for run in runs.split("&&") if "pip install" in run]
    assert len(installs) == (4 if path.stem == "engine" else 3)  # what makes the bill of materials
    for install in installs:
        assert "--require-hashes" in install or "--no-index --no-deps dist/meanstream-" in install
    assert instructions(path, "USER")[-1] == "10001:10001"
    assert instructions(path, "STOPSIGNAL") == ["SIGTERM"]
    assert instructions(path, "ENTRYPOINT")[-1].startswith("[")
    assert len(instructions(path, "FROM")) >= 2


def test_the_engines_image_is_asked_whether_it_is_well_as_compose_says() -> None:
    path = DOCKER / "engine.Dockerfile"
    assert instructions(path, "ENTRYPOINT") == ['["tini", "--", "meanstream"]']
    assert "--from=build /usr/bin/tini-static /usr/bin/tini" in instructions(path, "COPY")
    assert "/opt/meanstream/probe.py" in instructions(path, "HEALTHCHECK")[0]
    assert "127.0.0.1:9464/healthz" in instructions(path, "HEALTHCHECK")[0]
    assert "--metrics=0.0.0.0:9464" in SERVICES["engine"]["command"]


@pytest.mark.parametrize("name", ["engine", "beam", "build"])
def test_a_lock_has_a_hash_for_every_package_and_the_versions_that_are_tested(name: str) -> None:
    text = (ROOT / "requirements" / f"{name}.lock").read_text()
    entries = [
        entry
        for entry in re.split(r"(?m)^(?=[a-z0-9])", text)
        if entry.strip() and not entry.startswith("#")
    ]
    assert entries
    assert [entry.split("==")[0] for entry in entries if "--hash=sha256:" not in entry] == []
    tested = locked("dev")
    different = {p: v for p, v in locked(name).items() if name != "build" and tested.get(p, v) != v}
    assert different == {}, "run `make lock`"


def test_the_locks_hold_what_the_project_needs() -> None:
    def names(requirements: list[str]) -> set[str]:
        return {re.split(r"[>=\[]", requirement)[0] for requirement in requirements}

    optional = PROJECT["optional-dependencies"]
    engine = names(PROJECT["dependencies"]) | names(optional["kafka"])
    assert engine <= locked("engine").keys()
    assert engine | names(optional["beam"]) <= locked("beam").keys()
    assert "pytest" not in locked("engine")
    assert "hatchling" in locked("build")


def test_images_have_versions_and_they_are_those_that_the_tests_run() -> None:
    images = {name: service["image"] for name, service in SERVICES.items()}
    for image in images.values():
        assert re.fullmatch(r"[a-z/-]+:v?\d+\.\d+\.\d+[a-z0-9._-]*", image), image
    version = PROJECT["version"]
    assert {images[name] for name in OURS} == {
        f"meanstream-engine:{version}",
        f"meanstream-beam:{version}",
    }
    assert images["kafka"] == f"apache/kafka:{KAFKA_VERSION}"
    for path in DOCKERFILES:
        assert (
            f"-t {images['engine' if 'engine' in path.name else 'beam-worker']} "
            in path.read_text()
        )
        assert all(not line.endswith(("latest", ":")) for line in instructions(path, "ARG"))
    beam = (DOCKER / "beam.Dockerfile").read_text()
    assert f"beam_python3.11_sdk:{locked('beam')['apache-beam']}\n" in beam


@pytest.mark.parametrize("profile", ["engine", "flink", "all"])
def test_what_a_service_waits_for_is_in_its_profile(profile: str) -> None:
    chosen = {name for name, service in SERVICES.items() if profile in service["profiles"]}
    assert chosen >= {"kafka", "producer", "prometheus", "grafana"}
    assert ("engine" in chosen) == (profile != "flink")
    assert ("flink-taskmanager" in chosen) == (profile != "engine")
    for name in chosen:
        waits = SERVICES[name].get("depends_on", {})
        assert waits.keys() <= chosen
        for other, how in waits.items():
            expected = "service_completed_successfully" if other in ONE_SHOT else "service_healthy"
            assert how["condition"] == expected


@pytest.mark.parametrize("name", SERVICES)
def test_a_service_is_confined_and_watched(name: str) -> None:
    service = SERVICES[name]
    if name in OURS | {"prometheus", "grafana"}:
        assert service["read_only"] is True
        assert service["cap_drop"] == ["ALL"]
        assert service["security_opt"] == ["no-new-privileges:true"]
    for port in service.get("ports", []):
        assert port.startswith("127.0.0.1:"), "nothing may be reached from other machines"
    if name not in ONE_SHOT:
        assert service["restart"] in ("unless-stopped", "on-failure:5")
        # The engines' is in their image.
        assert "healthcheck" in service or service["image"].startswith("meanstream-engine")
    for volume in service.get("volumes", []):
        place = volume.split(":")[0]
        if place.startswith("."):
            assert (DOCKER / place).is_dir()
            assert volume.endswith(":ro")
        else:
            assert place in COMPOSE["volumes"]
    if "build" in service:
        assert (DOCKER / service["build"]["context"] / service["build"]["dockerfile"]).is_file()


def test_a_key_from_a_file_is_for_the_engines_and_where_they_look_for_it() -> None:
    overlay = yaml.safe_load((DOCKER / "compose.secret.yaml").read_text())
    assert set(overlay["services"]) == {"engine", "rounds"}
    for name, service in overlay["services"].items():
        assert service["environment"] == {
            SECRET_FILE_VARIABLE: f"/run/secrets/{service['secrets'][0]}"
        }
        assert service["secrets"] == list(overlay["secrets"])
        assert not any(word.startswith("--secret-file") for word in SERVICES[name]["command"]), (
            "which would win"
        )


def test_every_volume_is_used() -> None:
    used = {
        volume.split(":")[0]
        for service in SERVICES.values()
        for volume in service.get("volumes", [])
    }
    assert set(COMPOSE["volumes"]) <= used


def test_no_two_engines_share_a_store() -> None:
    stores = [
        service["volumes"][0] for name, service in SERVICES.items() if name in ("engine", "rounds")
    ]
    assert len(set(stores)) == 2
