"""A running digest of all that was read of a text, by which a file is recognized."""

from __future__ import annotations

import hashlib

END_BYTES = 4096
"""Of what was taken last, by which a file that is followed is seen to change."""


class ReadDigest:
    """Follows what is taken of a text, in pieces of any size.

    Attributes
    ----------
    end : bytes
        What was taken last.

    Examples
    --------
    >>> one, other = ReadDigest(), ReadDigest()
    >>> one.take(b"a,1"), other.throw_away(b"a"), other.take(b",1"), one.text() == other.text()
    (None, None, None, True)
    """

    def __init__(self) -> None:
        self.end = b""
        self._taken = hashlib.sha256()
        self._ahead = self._taken  # the same, with what was thrown away of a line that has not ended

    def throw_away(self, data: bytes | memoryview) -> None:
        """Follow what is part of the next piece and is not kept; until that is taken it is not counted."""
        if self._ahead is self._taken:
            self._ahead = self._taken.copy()
        self._ahead.update(data)

    def take(self, data: bytes | memoryview) -> None:
        """Follow the next piece."""
        if self._ahead is not self._taken:
            self._taken, self.end = self._ahead, b""
        self._taken.update(data)
        self.end = (self.end + bytes(data[-END_BYTES:]))[-END_BYTES:]

    def text(self) -> str:
        """Give the digest of what was taken."""
        return self._taken.hexdigest()
