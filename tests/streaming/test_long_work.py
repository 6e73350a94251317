"""A bar where somebody looks and work is long; nothing in a log, a pipe or a file."""

from __future__ import annotations

import io

import pytest

from meanstream.streaming import long_work
from meanstream.streaming.long_work import tracked_work


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("place", "patience", "shown"),
    [(Terminal(), 0.0, True), (Terminal(), 60.0, False), (io.StringIO(), 0.0, False)],
)
def test_a_bar_where_somebody_looks(
    place: io.StringIO,
    patience: float,
    shown: bool,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("sys.stderr", place)
    monkeypatch.setattr(long_work, "PATIENCE", patience)
    monkeypatch.setenv("TERM", "xterm")
    found = []
    for piece in tracked_work(range(5), "counting"):
        found.append(piece)
        print(piece)  # noqa: T201 - as a command does
    assert found == list(range(5))
    assert ("counting" in place.getvalue()) == shown
    assert capsys.readouterr().out == "0\n1\n2\n3\n4\n"


def test_what_breaks_the_work_ends_the_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    place = Terminal()
    monkeypatch.setattr("sys.stderr", place)
    monkeypatch.setattr(long_work, "PATIENCE", 0.0)
    work = tracked_work(range(5), "counting")
    assert [next(work) for _ in range(3)] == [0, 1, 2]
    with pytest.raises(RuntimeError, match="stopped"):
        work.throw(RuntimeError("stopped"))
    assert (
        place.getvalue().endswith("\x1b[?25h") or "\x1b[?25h" in place.getvalue()
    )  # the cursor is back


def test_no_bar_for_one_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    place = Terminal()
    monkeypatch.setattr("sys.stderr", place)
    monkeypatch.setattr(long_work, "PATIENCE", 0.0)
    assert list(tracked_work(["all"], "counting")) == ["all"]
    assert place.getvalue() == ""
