"""What docs/beam.md shows is run; of the job on Flink the pipeline is built, as far as to what
would be submitted."""

from __future__ import annotations

import sys
from pathlib import Path

import apache_beam as beam
import pytest

PAGE = Path(__file__).parents[3] / "docs" / "beam.md"
BLOCKS = [
    block.partition("\n")[2]
    for block in PAGE.read_text(encoding="utf-8").split("```")[1::2]
    if "import " in block
]


@pytest.mark.parametrize("block", BLOCKS)
def test_python_of_the_page_runs(
    block: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    built: list[str] = []
    if "kafka://" in block:
        monkeypatch.setattr(
            sys, "argv", ["agents_on_flink.py", "--runner=FlinkRunner", "--streaming"]
        )
        monkeypatch.setattr(
            beam.Pipeline,
            "run",
            lambda pipeline, *_: built.append(str(pipeline.to_runner_api())) or Done(),
        )
    exec(compile(block, str(PAGE), "exec"), {})  # noqa: S102 - our own page
    told = "30.0\n" * 3 if "exceeds" in block else "malformed\n"
    assert "ReadKafka" in built[0] if built else capsys.readouterr().out == told


class Done:
    """What a pipeline that was not run gives."""

    def wait_until_finish(self) -> None:
        """At once."""


def test_there_is_something_to_run() -> None:
    assert len(BLOCKS) == 4
