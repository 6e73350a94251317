"""Rejected records of a source that is read whole: eleven bytes for each, whatever it was."""

from __future__ import annotations

from array import array

from meanstream.streaming.events.event_columns import Rejects

_NO_SIZE = 0xFF


class KeptRejects:
    """Rejected records in order, packed: a file of bad lines alone takes less memory than one of samples.

    Examples
    --------
    >>> kept, two = KeptRejects(), Rejects(["no_value", "not_json"], [7, 8], [None, 64])
    >>> kept.extend(two)
    >>> kept.part(1, 5)
    Rejects(reason=['not_json'], position=[8], size=[64])
    """

    def __init__(self) -> None:
        self._reasons: dict[str, int] = {}
        self._reason, self._position, self._size = array("H"), array("q"), array("B")

    def __len__(self) -> int:
        return len(self._position)

    def extend(self, other: Rejects) -> None:
        """Append some."""
        codes = self._reasons
        self._reason.extend(codes.setdefault(reason, len(codes)) for reason in other.reason)
        self._position.extend(other.position)
        self._size.extend(_NO_SIZE if size is None else size.bit_length() - 1 for size in other.size)

    def part(self, start: int, stop: int) -> Rejects:
        """Give some as they were."""
        names, which = list(self._reasons), slice(start, stop)
        return Rejects(
            [names[code] for code in self._reason[which]],
            self._position[which].tolist(),
            [None if power == _NO_SIZE else 1 << power for power in self._size[which]],
        )
