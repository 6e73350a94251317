"""A running digest of all that was read of a text, by which a file is recognized."""

from __future__ import annotations

import hashlib
from typing import Self

from cryptography.hazmat.primitives.ciphers.aead import AESGCM

END_BYTES = 4096
"""Of what was taken last, by which a file that is followed is seen to change."""

LEAF_BYTES = 1 << 16
"""What has a tag of its own; less than that is kept until more comes."""

_TAGS = AESGCM(b"a file, as read!")
_NONCE = bytes(12)


class ReadDigest:
    """Follows what is taken of a text, in pieces of any size.

    A SHA-256 digest of the tags that AES-GCM has for parts of the text: ten times as fast as one of
    the text. The key is in this file. So the digest shows a change, and does not protect from
    someone who looks for two files with the same one. Who may write to a file can append lines that
    repeat others, which no digest shows either.

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
        self._taken = _Tags()
        self._ahead = (
            self._taken
        )  # the same, with what was thrown away of a line that has not ended

    def throw_away(self, data: bytes | memoryview) -> None:
        """Follow what is part of the next piece and is not kept.

        Until that is taken it is not counted.
        """
        if self._ahead is self._taken:
            self._ahead = self._taken.copy()

        self._ahead.update(data)

    def take(self, data: bytes | memoryview) -> None:
        """Follow the next piece."""
        if self._ahead is not self._taken:
            self._taken = self._ahead
            self.end = b""

        self._taken.update(data)
        self.end = (self.end + bytes(data[-END_BYTES:]))[-END_BYTES:]

    def text(self) -> str:
        """Give the digest of what was taken."""
        return self._taken.text()


class _Tags:
    """The digest of the tags of whole leaves, and the bytes of the leaf that is not whole."""

    def __init__(self) -> None:
        self._digest = hashlib.sha256()
        self._rest = b""

    def copy(self) -> Self:
        """Give the same, to go on in another way."""
        other = type(self)()
        other._digest = self._digest.copy()
        other._rest = self._rest
        return other

    def update(self, data: bytes | memoryview) -> None:
        """Take more of the text in."""
        view = memoryview(data).cast("B")
        if self._rest:
            first = LEAF_BYTES - len(self._rest)
            self._rest, view = self._rest + view[:first], view[first:]

            if len(self._rest) < LEAF_BYTES:
                return
            self._digest.update(_tag(self._rest))

        whole = len(view) - len(view) % LEAF_BYTES
        for at in range(0, whole, LEAF_BYTES):
            self._digest.update(_tag(view[at : at + LEAF_BYTES]))

        self._rest = bytes(view[whole:])

    def text(self) -> str:
        """Give the digest of all so far."""
        digest = self._digest.copy()
        digest.update(_tag(self._rest))
        return digest.hexdigest()


def _tag(leaf: bytes | memoryview) -> bytes:
    return _TAGS.encrypt(_NONCE, b"", leaf)
