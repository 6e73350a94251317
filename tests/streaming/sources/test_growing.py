"""A file that grows and a pipe: each ended line once, in order, also after a restart; what was cut
ends the run."""

from __future__ import annotations

import json
import os
from contextlib import closing
from pathlib import Path

import pytest

from meanstream.streaming.events.event_columns import Position
from meanstream.streaming.sources.growing_file import GrowingFile, StandardInput
from meanstream.streaming.sources.mapping import ColumnMapping
from meanstream.streaming.sources.source_protocol import SourceLostError
from tests.pipelines.command_line import SECRET, meanstream

MAPPING = ColumnMapping()


def line(number: int) -> bytes:
    return json.dumps({"agent": "a", "value": number, "time": 50}).encode() + b"\n"


def test_a_growing_file_is_read_as_it_grows_and_from_where_it_stood(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_bytes(line(1) + line(2)[:10])
    with closing(GrowingFile(path, MAPPING)) as source, path.open("ab", buffering=0) as writer:
        first = source.next_batch(10)
        assert first.samples.value.tolist() == [1.0]
        assert not len(source.next_batch(10).samples)
        writer.write(line(2)[10:] + b"{\n" + line(4))
        batch = source.next_batch(10)
        assert (batch.samples.value.tolist(), batch.samples.position.tolist()) == (
            [2.0, 4.0],
            [2, 4],
        )
        assert (batch.rejects.reason, batch.rejects.position) == (["malformed"], [3])
        assert not batch.exhausted
    with closing(GrowingFile(path, MAPPING)) as again:
        again.restore(first.position)
        assert again.next_batch(10).samples.position.tolist() == [2, 4]
        path.write_bytes(line(1))
        with pytest.raises(SourceLostError, match="source must only grow while it is followed"):
            again.next_batch(10)


def test_a_file_that_is_cut_and_written_anew_ends_the_run_however_long_it_is(
    tmp_path: Path,
) -> None:
    path = tmp_path / "x.jsonl"
    path.write_bytes(line(1) + line(2))
    with closing(GrowingFile(path, MAPPING)) as source:
        assert len(source.next_batch(10).samples) == 2
        path.write_bytes(b"".join(map(line, range(7, 20))))  # the same file, longer than it was
        with pytest.raises(SourceLostError, match="source must only grow while it is followed"):
            source.next_batch(10)


def test_a_line_without_end_is_passed_piece_by_piece(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("meanstream.streaming.sources.lines.READ_BYTES", 1000)
    monkeypatch.setattr("meanstream.streaming.sources.growing_file.WAIT_SECONDS", 0)
    path = tmp_path / "x.jsonl"
    path.write_bytes(line(1) + b"x" * 100_000)
    with closing(GrowingFile(path, MAPPING, max_line_bytes=500)) as source, path.open("rb") as same:
        assert len(source.next_batch(1).samples) == 1
        before = source.next_batch(1)
        assert (len(before.samples), len(before.rejects), before.position["offset"]) == (
            0,
            0,
            len(line(1)),
        )
        assert source._reader._stream.tell() < 10_000
        with path.open("ab") as writer:
            writer.write(b"\n" + line(3))
        batches = [source.next_batch(1) for _ in range(120)]
        assert [batch.rejects.reason for batch in batches if len(batch.rejects)] == [["oversized"]]
        assert [batch.samples.value.tolist() for batch in batches if len(batch.samples)] == [[3.0]]
        assert len(same.read()) == batches[-1].position["offset"]


def test_a_pipe_is_read_to_its_end_in_batches_of_any_size() -> None:
    read, write = os.pipe()
    with closing(StandardInput(MAPPING, number=read)) as source:
        assert not len(source.next_batch(10).samples)
        os.write(write, b"".join(map(line, range(5))) + line(5)[:-1])
        found: list[float] = []
        for _ in range(3):
            found += source.next_batch(2).samples.value.tolist()
        assert found == [0.0, 1.0, 2.0, 3.0, 4.0]
        os.close(write)
        last = source.next_batch(2)
        assert (last.samples.value.tolist(), last.position["piped"]) == ([5.0], 6)
        assert source.next_batch(2).exhausted
    os.close(read)


def test_a_file_on_standard_input_goes_on_behind_what_was_read_of_it(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_bytes(b"a head line\n" + b"".join(map(line, range(5))))

    def values(position: Position | None, lines: bytes = b"") -> tuple[list[float], list[int]]:
        with path.open("r+b", buffering=0) as file:
            file.read(len(b"a head line\n"))
            if lines:
                file.write(lines)
                file.seek(len(b"a head line\n"))
            with closing(StandardInput(MAPPING, number=file.fileno())) as source:
                if position is not None:
                    source.restore(position)
                batch = source.next_batch(3)
                nonlocal newest
                newest = batch.position
                return batch.samples.value.tolist(), batch.samples.position.tolist()

    newest: Position = {}
    assert values(None) == ([0.0, 1.0, 2.0], [1, 2, 3])
    assert values(newest) == ([3.0, 4.0], [4, 5])
    assert values(newest, line(7)) == ([7.0, 1.0, 2.0], [6, 7, 8])  # other lines count from here on


@pytest.mark.parametrize("at", [0, 1, 150, 299])
@pytest.mark.parametrize("change", ["insert", "remove"])
def test_a_followed_file_that_changed_anywhere_before_what_was_read_is_refused(
    at: int, change: str, tmp_path: Path
) -> None:
    """While it is read and when it is opened again; the lines behind the change had counted."""
    path = tmp_path / "x.jsonl"
    lines = [line(number) for number in range(400)]
    path.write_bytes(b"".join(lines[:300]))
    changed = (
        [*lines[:at], line(1000), *lines[at:]]
        if change == "insert"
        else lines[:at] + lines[at + 1 :]
    )
    with closing(GrowingFile(path, MAPPING)) as source:
        position = source.next_batch(300).position
        path.write_bytes(b"".join(changed))
        with pytest.raises(SourceLostError, match="source must only grow while it is followed"):
            source.next_batch(300)
    with (
        closing(GrowingFile(path, MAPPING)) as source,
        pytest.raises(ValueError, match="must be the file that"),
    ):
        source.restore(position)
    path.write_bytes(b"".join(lines))
    with closing(GrowingFile(path, MAPPING)) as source:
        source.restore(position)
        assert source.next_batch(300).samples.position.tolist() == list(range(301, 401))


def test_of_a_file_that_somebody_has_begun_to_read_the_rest_is_read(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_bytes(b"a head line\n" + line(1))
    with path.open("rb", buffering=0) as file:
        file.read(len(b"a head line\n"))
        with closing(StandardInput(MAPPING, number=file.fileno())) as source:
            batch = source.next_batch(10)
            assert (batch.samples.value.tolist(), len(batch.rejects)) == ([1.0], 0)
            assert source.next_batch(10).exhausted


def test_a_run_reads_standard_input_and_says_what_it_cannot_follow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, write = os.pipe()
    os.write(write, b"".join(map(line, range(20))))
    os.close(write)
    monkeypatch.setattr("meanstream.streaming.sources.growing_file.DESCRIPTOR", read)
    options = (
        "--lower",
        "0",
        "--upper",
        "20",
        "--epsilon",
        "1",
        "--delta",
        "1e-6",
        "--quiet",
        "--json",
    )
    places = ("--store", str(tmp_path / "s.db"), "--sink", str(tmp_path / "e.jsonl"))
    ran = meanstream(
        "run",
        "agents",
        "--source",
        "-",
        *options,
        *places,
        environment={"MEANSTREAM_SECRET": SECRET},
    )
    assert ran.code == 0, ran.err
    assert (ran.json["accepted"], ran.json["estimates"]) == (20, 1)
    os.close(read)
    (tmp_path / "x.csv").write_text("agent,value,time\n")
    follow = ("--source", str(tmp_path / "x.csv"), "--follow", "--refresh", "1m")
    assert meanstream("run", "agents", *follow, *options, *places).message.startswith(
        "source must be a readable file of type .jsonl, .ndjson to follow"
    )


def test_held_at_its_end_a_file_gives_what_was_there_and_goes_on_later(tmp_path: Path) -> None:
    path = tmp_path / "samples.jsonl"
    path.write_bytes(line(0) + line(1) + line(2))
    with closing(GrowingFile(path, MAPPING)) as source, path.open("ab", buffering=0) as writer:
        assert len(source.next_batch(2).samples) == 2  # the third is read, and not given yet
        assert source.hold()
        writer.write(line(3))
        assert not source.reached_hold()
        assert len(source.next_batch(9).samples) == 1
        assert (source.reached_hold(), len(source.next_batch(9).samples)) == (True, 0)
        source.go_on()
        assert len(source.next_batch(9).samples) == 1
