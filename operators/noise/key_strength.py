"""Whether a key can be what it must be: 128 random bits, written in a way that shows it."""

from __future__ import annotations

import re
from itertools import pairwise

MIN_BYTES = 16
DISTINCT = 8
"""So many different bytes, or hexadecimal digits, are in all but one of a billion random keys of
128 bits."""

FEW_STEPS = 5
"""Fewer different steps from one byte to the next are a pattern."""

MOST_TYPED = 0.85
"""More bytes of ASCII (or zeros between them) than this are text; of 16 random bytes once in ten
thousand keys."""

_TYPED = frozenset((0, 9, 10, 13, *range(32, 127)))
_HEX = re.compile(rb"[0-9a-fA-F]+")
_BASE64 = re.compile(rb"[A-Za-z0-9+/_-]+={0,2}")
_HEX_DIGITS = 32
_BASE64_DIGITS = 22  # of 128 bits


def key_weakness(key: bytes) -> str | None:  # noqa: PLR0911
    """Say why a key is not 128 random bits or more; None if it can be.

    Random are bytes that are no text, hexadecimal digits, and base 64. A phrase is not, however
    long: anyone who has a release and the settings tries phrases at the speed of a hash. Only the
    form can be seen: the digest of a phrase looks like random digits. `meanstream secret new` draws
    a key.

    Parameters
    ----------
    key : bytes
        As it is in a file or a variable, without blanks around it.

    Returns
    -------
    str or None
        What it is instead; never a part of it.

    Notes
    -----
    A key that was drawn at random is taken for a weak one with probability below 1e-8 as hexadecimal digits, below 3e-4
    as 16 bytes (1e-7 as 32), and below 2e-3 as base 64 of 128 bits (1e-6 of 256), where a phrase without blanks looks
    most alike.

    Examples
    --------
    >>> key_weakness(b"0f1e2d3c4b5a69788796a5b4c3d2e1f0"[::-1]), key_weakness(b"correct horse battery staple")
    ('digits in a row', 'a phrase')
    >>> key_weakness(b"9b1f6c04d2a85e73bb40c9f1e6a7250d"), key_weakness(bytes(32)), key_weakness(b"0" * 64)
    (None, 'too few different bytes', 'too few different bytes')
    """
    if len(key) < MIN_BYTES:
        if key:
            return f"{len(key)} bytes"
        return "an empty one"

    if len(set(key)) < DISTINCT or _repeats(key):
        if len(set(key)) < DISTINCT:
            return "too few different bytes"
        return "a repetition"

    if _HEX.fullmatch(key):
        return _weak_hex(key)

    if (
        _BASE64.fullmatch(key)
        and len(key.rstrip(b"=")) >= _BASE64_DIGITS
        and _is_mixed(key.rstrip(b"="))
    ):
        return None

    if _is_text(key):
        return "a phrase"

    if _steps(list(key), 1) < FEW_STEPS:
        return "bytes in a row"
    return None


def require_strong_key(key: object, where: str = "") -> None:
    """Refuse what is no key of 128 random bits or more, wherever a key comes from.

    The one rule, in one line.

    **Privacy.** Anyone who guesses the key knows the noise. A phrase can be guessed, with a release to try it on.

    Parameters
    ----------
    key : bytes
        The key; the refusal shows nothing of it.
    where : str
        The file or variable that it is from.

    Examples
    --------
    >>> require_strong_key(b"correct horse b.")
    Traceback (most recent call last):
    ValueError: secret must be 128 random bits or more (meanstream secret new FILE), got a phrase
    """
    weakness = key_weakness(key) if isinstance(key, bytes) else f"{type(key).__name__}, not bytes"
    if weakness is not None:
        place = f" in {where}" if where else ""
        raise ValueError(
            f"secret must be 128 random bits or more (meanstream secret new FILE), got {weakness}{place}"
        )


def _weak_hex(key: bytes) -> str | None:
    if len(key) < _HEX_DIGITS:
        return f"{len(key) * 4} bits"
    digits = [int(chr(digit), 16) for digit in key]
    pairs = [16 * a + b for a, b in zip(digits[::2], digits[1::2], strict=False)]
    steps = (_steps(digits, 1), _steps(digits, 2), _steps(pairs, 1))

    if min(steps) < FEW_STEPS:
        return "digits in a row"
    return None


def _steps(numbers: list[int], stride: int) -> int:
    """Count the different steps from a number to the one `stride` later.

    Few of them are a pattern.
    """
    return len({b - a for a, b in zip(numbers, numbers[stride:], strict=False)})


def _repeats(key: bytes) -> bool:
    """Say whether a key is one piece again and again, the last time perhaps in part.

    In time linear in its length.
    """
    border = [
        0
    ]  # of each beginning of the key: how much of its end is its beginning (Knuth, Morris and Pratt 1977)
    for byte in key[1:]:
        length = border[-1]
        while length and key[length] != byte:
            length = border[length - 1]

        border.append(length + (key[length] == byte))

    return len(key) - border[-1] <= len(key) // 2


def _is_mixed(key: bytes) -> bool:
    """Say whether small letters, capitals and the rest follow each other as at random.

    Six times in ten they change.
    """
    kinds = [0 if 97 <= byte <= 122 else 1 if 65 <= byte <= 90 else 2 for byte in key]
    changes = sum(a != b for a, b in pairwise(kinds))
    return changes > 0.3 * (len(kinds) - 1)


def _is_text(key: bytes) -> bool:
    """Say whether bytes are text.

    UTF-8 with tabs, lines and all, or mostly ASCII, as Latin-1 and UTF-16 are.
    """
    try:
        key.decode()
    except UnicodeDecodeError:
        return sum(byte in _TYPED for byte in key) > MOST_TYPED * len(key)

    return True
