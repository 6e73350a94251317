"""A real Flink cluster gives the bytes of the engine, two stages and a budget included."""

from __future__ import annotations

from pathlib import Path

from meanstream.pipelines.beam.beam_runners import runner_arguments
from tests.pipelines.command_line import arguments, meanstream
from tests.servers.support.flink_cluster import FlinkCluster
from tests.streaming.support.rounds_world import SECRET, samples


def test_flink_gives_the_bytes_of_the_engine(flink: FlinkCluster, tmp_path: Path) -> None:
    rows = [f"{user},{value!r},{time!r}" for user, value, time in samples()]
    (tmp_path / "samples.csv").write_text("\n".join(["user,value,time", *rows]) + "\n")
    (tmp_path / "secret").write_text(SECRET)
    options = {
        "source": tmp_path / "samples.csv", "lower": 0, "upper": 10, "epsilon": 2, "window": "1d",
        "estimator": "kent", "sizes": "uniform:1,30", "user_budget": 6, "secret_file": tmp_path / "secret",
        "store": tmp_path / "rounds.db", "name": "test",
    }  # fmt: skip
    engine, beamed = tmp_path / "engine.jsonl", tmp_path / "flink.jsonl"
    assert meanstream("run", "rounds", *arguments({**options, "sink": engine}), "--quiet").code == 0
    given = [
        f"--runner-arg={argument}"
        for argument in runner_arguments("FlinkRunner", flink.arguments(own_job_server=True))
    ]
    ran = meanstream(
        "run",
        "rounds",
        *arguments({**options, "sink": beamed, "runner": "FlinkRunner"}),
        *given,
        "--json",
    )
    assert ran.code == 0, ran.err.decode()
    assert ran.json["over_budget"] == 12
    assert beamed.read_bytes() == engine.read_bytes()
    assert beamed.read_bytes().count(b"\n") == 4
