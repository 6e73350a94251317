"""`--coverage anytime` in the engine, its store, frames and `explain`: public bytes stay, and
intervals widen."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from meanstream.pipelines.frames.private_means import private_means
from meanstream.streaming.agents.store_answers import StoreAnswers
from tests.pipelines.command_line import SECRET, meanstream

RUN = (
    "--lower",
    "0",
    "--upper",
    "1",
    "--epsilon",
    "1",
    "--delta",
    "1e-6",
    "--quiet",
    "--name",
    "anytime",
)


def run(folder: Path, coverage: str, samples: int = 4000) -> dict[str, list[dict[str, Any]]]:
    """Run an engine; give its estimates, releases and populations."""
    folder.mkdir(exist_ok=True)
    outputs = {name: folder / f"{name}.jsonl" for name in ("sink", "releases", "population")}
    more = [text for name, path in outputs.items() for text in (f"--{name}", str(path))]
    source = ("--source", f"synthetic:20,{samples}", "--store", str(folder / "state.db"))
    ran = meanstream(
        "run",
        "agents",
        *source,
        *RUN,
        "--coverage",
        coverage,
        *more,
        environment={"MEANSTREAM_SECRET": SECRET},
    )
    assert ran.code == 0, ran.err
    return {
        name: [json.loads(line) for line in path.read_text().splitlines()]
        for name, path in outputs.items()
    }


def test_a_memory_and_another_word_are_refused_before_any_data(tmp_path: Path) -> None:
    store = ("--source", "synthetic:2,100", "--store", str(tmp_path / "state.db"), *RUN)
    for more, rule in (
        (("--coverage", "often"), "coverage must be pointwise or anytime, got 'often'"),
        (
            ("--coverage", "anytime", "--memory", "half-life:500"),
            "coverage must be pointwise with a memory",
        ),
    ):
        ran = meanstream("run", "agents", *store, *more, environment={"MEANSTREAM_SECRET": SECRET})
        assert ran.code == 2
        assert rule in ran.err.decode()
        assert len(ran.err.decode().splitlines()) == 1


def test_explain_says_what_intervals_promise() -> None:
    asked = ("explain", "agents", *RUN[:8])
    assert "each moment" in meanstream(*asked).out.decode()
    assert (
        "hold together"
        in meanstream(*asked, environment={"MEANSTREAM_COVERAGE": "anytime"}).out.decode()
    )


def test_public_events_are_the_same_bytes_and_intervals_hold_the_pointwise_ones(
    tmp_path: Path,
) -> None:
    found = {coverage: run(tmp_path / coverage, coverage) for coverage in ("pointwise", "anytime")}
    for name in ("releases", "population"):
        assert found["pointwise"][name] == found["anytime"][name]
    for short, long in zip(found["pointwise"]["sink"], found["anytime"]["sink"], strict=True):
        assert "coverage" not in short
        assert long["coverage"] == "anytime"
        assert long["value"] == short["value"]
        for name in ("interval", "local_interval"):
            assert long[name][0] < short[name][0] < short[name][1] < long[name][1]
        assert (
            short["noise_half_width"]
            <= long["noise_half_width"]
            <= (long["interval"][1] - long["interval"][0]) / 2
        )


def test_a_store_answers_as_the_last_run_did(tmp_path: Path) -> None:
    found = run(tmp_path, "anytime")["sink"]
    answer = StoreAnswers(tmp_path / "state.db").answer(found[0]["agent"])
    assert answer is not None
    assert {name: answer[name] for name in ("coverage", "interval")} == {
        name: found[0][name] for name in ("coverage", "interval")
    }


def test_means_of_frames_say_and_keep_the_promise() -> None:
    rng = np.random.default_rng(3)
    table = pa.table({"ward": [f"w{i}" for i in range(30)] * 60, "stay": rng.uniform(0, 1, 1800)})
    common: dict[str, Any] = {
        "by": "ward", "value": "stay", "lower": 0, "upper": 1, "epsilon": 1.0, "delta": 1e-6, "secret": SECRET,
        "name": "anytime",
    }  # fmt: skip
    short, long = (
        private_means(table, coverage=coverage, **common) for coverage in ("pointwise", "anytime")
    )
    assert short.releases.equals(long.releases)
    one, other = (found.table.to_pydict() for found in (short, long))
    assert one["mean"] == other["mean"]
    assert np.all(np.array(other["upper"]) - other["lower"] > np.array(one["upper"]) - one["lower"])
    assert any("hold at all calls together" in note for note in long.notes)
    assert not any("hold at all calls together" in note for note in short.notes)
