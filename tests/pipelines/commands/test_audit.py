"""`meanstream audit`: the table, its JSON, and exit code 1 with the name of what promises too much."""

import pytest

from meanstream.operators.counters.toeplitz import Toeplitz
from tests.pipelines.command_line import meanstream


def test_mechanisms_as_a_table_and_as_json() -> None:
    ran = meanstream("audit", "mechanism", "channel.one_bit", "vote.sue", "--epsilon", "0.5")
    assert ran.code == 0
    lines = ran.out.decode().splitlines()
    assert lines[1].split() == ["channel.one_bit", "0.5", "0.5000", "1.000", "0.5000", "0"]
    assert "2 audited" in lines[-1]
    found = meanstream("audit", "mechanism", "channel.one_bit", "--json").json
    assert found["violated"] == []
    assert found["rows"][0]["ratio"] == pytest.approx(1.0)


def test_a_mechanism_that_promises_too_much_ends_with_1(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Toeplitz, "l2_sensitivity", property(lambda self: 1.0))
    ran = meanstream("audit", "mechanism", "counter")
    assert ran.code == 1
    assert b"VIOLATED" in ran.out
    assert ran.err == b"meanstream: privacy must be as claimed, got less from counter.toeplitz.gaussian\n"


@pytest.mark.parametrize("bad", [["nobody"], ["--epsilon", "0"], ["--delta", "2"], ["counter", "--epsilon", "1e-6"]])
def test_what_cannot_be_audited_is_refused_in_one_line(bad: list[str]) -> None:
    assert " must " in meanstream("audit", "mechanism", *bad).message
