"""`meanstream secret new`: a new file with a new key."""

from __future__ import annotations

import stat
from pathlib import Path

from tests.pipelines.command_line import arguments, meanstream, options, write_samples


def test_a_new_key_runs_a_store(tmp_path: Path) -> None:
    write_samples(tmp_path / "flights.csv")
    key = tmp_path / "noise.key"
    ran = meanstream("secret", "new", str(key))
    assert (ran.code, ran.out, ran.err.count(b"\n")) == (0, b"", 1)
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    assert key.read_bytes().strip() not in ran.err
    assert (
        meanstream("run", "agents", *arguments(options(tmp_path, quiet=True, secret_file=key))).code
        == 0
    )
    assert "secret must be a new file" in meanstream("secret", "new", str(key)).message
