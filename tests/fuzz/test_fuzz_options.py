"""A slice of the fuzz of options; `make fuzz` gives 3,000 values."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest

from meanstream.pipelines.commands.run import agents_dry_run
from tests.fuzz.fuzzed_options import Slow, fuzz_options, taking_at_most


def test_a_bad_option_is_one_line_and_nothing_is_begun() -> None:
    found = fuzz_options(11, 60)
    assert not found.faults, found.examples
    assert found.ended["exit code 2"] > 30


def test_it_catches_a_command_that_checks_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A known-bad twin: a dry run that ends with an error nobody expected."""

    def begin(*_: object, **__: object) -> None:
        raise KeyError("a text that nobody may see")

    monkeypatch.setattr(agents_dry_run, "check_agents", begin)
    assert fuzz_options(11, 10, only="run agents").faults["traceback"] > 0


def test_what_takes_too_long_ends_after_its_imports(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A module that was left in the middle was broken for all later tests of the process: at load,
    that was SciPy."""
    (tmp_path / "imported_late.py").write_text("import time\ntime.sleep(0.3)\nwhole = True\n")
    monkeypatch.syspath_prepend(tmp_path)

    def never_ends() -> None:
        __import__("imported_late")
        while True:
            time.sleep(0.01)

    with pytest.raises(Slow), taking_at_most(0.05):
        never_ends()
    assert sys.modules.pop("imported_late").whole
