"""A real Flink cluster gives the engine's releases, on late, duplicate and disordered samples."""

from __future__ import annotations

from pathlib import Path

from meanstream.pipelines.beam.beam_runners import runner_arguments
from tests.pipelines.beam.support.agents_world import SETTINGS, assert_same_estimates, flawed_file
from tests.pipelines.command_line import arguments, meanstream
from tests.streaming.support.rounds_world import SECRET


def test_flink_gives_the_releases_of_the_engine(cluster: list[str], tmp_path: Path) -> None:
    (tmp_path / "secret").write_text(SECRET)
    options = {
        "source": flawed_file(tmp_path), "id": "id", "lower": 0, "upper": 10, "epsilon": 1, "delta": 1e-6,
        "schedule": "every:7h", "horizon": 12, "lateness": "4h", "sort": False, "secret_file": tmp_path / "secret",
        "name": "test",
    }  # fmt: skip
    given = [f"--runner-arg={argument}" for argument in runner_arguments("FlinkRunner", cluster)]
    for host, more, flags in (("engine", {}, []), ("flink", {"runner": "FlinkRunner"}, given)):
        places = {
            name: tmp_path / f"{host}.{name}.jsonl" for name in ("sink", "releases", "notices")
        }
        typed = arguments({**options, **more, **places, "store": tmp_path / f"{host}.db"})
        ran = meanstream("run", "agents", *typed, *flags, "--json")
        assert ran.code == 0, ran.err.decode()[-2000:]

    def lines(name: str) -> tuple[list[bytes], list[bytes]]:
        engine, flink = (
            (tmp_path / f"{host}.{name}.jsonl").read_bytes() for host in ("engine", "flink")
        )
        return sorted(engine.splitlines()), sorted(flink.splitlines())

    for name in ("releases", "notices"):
        engine, flink = lines(name)
        assert flink == engine
    assert len(lines("releases")[0]) > 100
    engine, flink = lines("sink")
    assert_same_estimates(flink, engine, SETTINGS)
