"""The pipelines that Dataflow gets, from files to files on this machine: the engine's answers.

A bucket is a folder: Beam's file systems are asked for gs://, and answer with local files.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from apache_beam.io.filesystems import FileSystems
from apache_beam.io.localfilesystem import LocalFileSystem

from meanstream.pipelines.beam.beam_runners import run_on_runner
from meanstream.pipelines.beam.commands.dataflow_pipelines import add_to_pipeline
from meanstream.pipelines.beam.commands.run_on_dataflow import secret_on_workers
from meanstream.pipelines.beam.worker.worker_secret import SecretLocation, _from_secret_manager
from meanstream.pipelines.options.agents_options import AgentsOptions
from meanstream.pipelines.options.rounds_options import RoundsOptions
from tests.pipelines.beam.support.agents_world import (
    ROUNDS_GIVEN,
    SETTINGS,
    assert_same_estimates,
    flawed_file,
)
from tests.pipelines.beam.support.secret_manager import secret_manager
from tests.pipelines.command_line import arguments, meanstream
from tests.streaming.support.rounds_world import SECRET

KEY = "projects/a-project/secrets/noise/versions/3"
AGENTS = {
    "lower": 0,
    "upper": 10,
    "epsilon": 1,
    "delta": 1e-6,
    "schedule": "every:7h",
    "horizon": 12,
    "id": "id",
    "name": "test",
    "quantiles": ".25,.9",
    "exceeds": "3",
}


@pytest.fixture
def bucket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A bucket that is the test's folder."""
    local = LocalFileSystem(None)
    monkeypatch.setattr(FileSystems, "get_filesystem", lambda _path: local)

    def path_of(path: str) -> str:
        return str(tmp_path / path.removeprefix("gs://some-bucket/"))

    for name in ("open", "create"):
        good = getattr(LocalFileSystem, name)
        monkeypatch.setattr(
            LocalFileSystem,
            name,
            lambda self, path, *more, good=good, **named: good(self, path_of(path), *more, **named),
        )
    (tmp_path / "secret").write_text(SECRET)
    flawed_file(tmp_path)
    return "gs://some-bucket"


def run_pipeline(options: AgentsOptions | RoundsOptions, key: str) -> None:
    secret = secret_on_workers(key)
    run_on_runner("FnApiRunner", [], lambda pipeline: add_to_pipeline(pipeline, options, secret))


def test_agents_of_a_bucket_are_the_engines(bucket: str, tmp_path: Path) -> None:
    names = ("sink", "releases", "notices")
    engine = {name: tmp_path / f"engine.{name}.jsonl" for name in names}
    typed = {**AGENTS, **engine, "source": tmp_path / "samples.csv", "store": tmp_path / "engine.db",
             "secret_file": tmp_path / "secret"}  # fmt: skip
    assert meanstream("run", "agents", *arguments(typed), "--quiet").code == 0

    sinks = {name: f"{bucket}/beam.{name}.jsonl" for name in names}
    options = AgentsOptions(
        **AGENTS, **sinks, source=f"{bucket}/samples.csv", runner="DataflowRunner"
    )
    _from_secret_manager.cache_clear()
    with secret_manager({KEY: SECRET.encode()}) as requests:
        run_pipeline(options, KEY)
    assert requests, "the secret was read on the workers"

    for name in names:
        lines = sorted((tmp_path / f"beam.{name}.jsonl").read_bytes().splitlines())
        expected = sorted(engine[name].read_bytes().splitlines())
        if name == "sink":
            assert_same_estimates(lines, expected, SETTINGS)
            assert all(len(json.loads(line)["quantiles"]) == 2 for line in lines)
        else:
            assert lines == expected != []


def test_rounds_of_a_bucket_are_the_engines(bucket: str, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    engine = {**ROUNDS_GIVEN, "source": tmp_path / "samples.csv", "sink": tmp_path / "engine.jsonl",
              "store": tmp_path / "engine.db", "secret_file": secret}  # fmt: skip
    assert meanstream("run", "rounds", *arguments(engine), "--quiet").code == 0

    options = RoundsOptions(
        **ROUNDS_GIVEN,
        source=f"{bucket}/samples.csv",
        sink=f"{bucket}/means.jsonl",
        runner="DataflowRunner",
    )
    run_pipeline(options, str(secret))
    assert (
        (tmp_path / "means.jsonl").read_bytes() == (tmp_path / "engine.jsonl").read_bytes() != b""
    )


def test_the_key_is_a_workers_file_or_a_version_in_secret_manager() -> None:
    assert secret_on_workers("/run/secrets/noise") == SecretLocation(file="/run/secrets/noise")
    assert secret_on_workers(KEY) == SecretLocation(resource=KEY)
