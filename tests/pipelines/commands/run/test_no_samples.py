"""A run whose records lack a field that it reads warns, once, and says what to do."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from meanstream.pipelines.commands.run.run_agents import ENOUGH
from tests.pipelines.command_line import SECRET, meanstream

BOUNDS = ("--lower", "0", "--upper", "50", "--epsilon", "1", "--lateness", "0s")


def ran(folder: Path, records: int, *names: str) -> str:
    """Standard error of a run over nested records."""
    lines = [
        json.dumps(
            {"meta": {"device": f"d{row % 3}"}, "v": 20 + row % 5, "ts": 1_767_600_000 + row}
        )
        for row in range(records)
    ]
    source = folder / "samples.jsonl"
    source.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    result = meanstream(
        "run", "agents", "--source", str(source), *names, *BOUNDS, "--store", str(folder / "s.db"),
        environment={"MEANSTREAM_SECRET": SECRET},
    )  # fmt: skip
    assert result.code == 0, result.err
    return result.err.decode()


@pytest.mark.parametrize("records", [3, 3 * ENOUGH])
@pytest.mark.parametrize(
    ("names", "said"),
    [
        ((), "has the field that --agent names, got 'agent'"),
        (("--agent", "meta.device"), "has the field that --time names, got 'time'"),
        (
            ("--agent", "meta.device", "--time", "ts"),
            "has the field that --value names, got 'value'",
        ),
    ],
)
def test_a_field_that_no_record_has_is_warned_of_once(
    names: tuple[str, ...], said: str, records: int, tmp_path: Path
) -> None:
    err = ran(tmp_path, records, *names)
    assert err.count(f"none of {records:,} records {said}") == 1
    assert err.count("begin again with a new --store") == 1


def test_a_run_with_samples_does_not_warn(tmp_path: Path) -> None:
    err = ran(tmp_path, 3, "--agent", "meta.device", "--value", "v", "--time", "ts")
    assert "has the field" not in err
