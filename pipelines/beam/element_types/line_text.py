"""Lines of events on their way through a pipeline.

In one piece, as they are written and as they travel.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import overload

from meanstream.streaming.events.encode import EventLines, split_event_lines


class LineText(Sequence[bytes]):
    r"""Lines in one piece, which is taken apart when one of them is requested, and not before.

    Parameters
    ----------
    text : bytes
        The lines, each with its end; JSON escapes line ends, so these are ours.

    Examples
    --------
    >>> lines = LineText(b"{}\n[]\n")
    >>> len(lines), list(lines), lines == [b"{}", b"[]"]
    (2, [b'{}', b'[]'], True)
    """

    def __init__(self, text: bytes) -> None:
        self.text = text
        self._count = text.count(b"\n")
        self._apart: list[bytes] | None = None

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, index: int) -> bytes: ...
    @overload
    def __getitem__(self, index: slice) -> list[bytes]: ...
    def __getitem__(self, index: int | slice) -> bytes | list[bytes]:
        return self._lines()[index]

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._lines())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and self._lines() == list(other)

    __hash__ = None  # type: ignore[assignment]

    def _lines(self) -> list[bytes]:
        if self._apart is None:
            self._apart = split_event_lines(self.text)

        return self._apart


def text_of_lines(lines: EventLines) -> bytes:
    """Give lines in one piece, each with its end."""
    if isinstance(lines.lines, LineText):
        return lines.lines.text
    return b"".join(lines.blocks())
