"""A slice of the fuzz of options; `make fuzz` gives 3,000 values."""

from __future__ import annotations

import pytest

from meanstream.pipelines.commands.run import agents_dry_run
from tests.fuzz.options import fuzz_options


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
