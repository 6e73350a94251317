"""A source's directory of names: a number for each, of bounded length."""

from __future__ import annotations

import itertools
import re
from unicodedata import is_normalized

import numpy as np
import pyarrow as pa
from pyarrow import compute as pc

from meanstream.operators.records import Bools, Ints
from meanstream.streaming.events.base import MAX_NAME, NAME_PATTERN
from meanstream.streaming.sources.name_hashes import COMPILED, CompiledNameTable, NameHashTable

MAX_DIRECTORY = 2_000_000
"""Names after which the directory of a source restarts: endless invented names take bounded
memory."""

FEW_NAMES = 8192
"""A dictionary of so many texts stays in the processor's cache."""

NO_NAME = -1
NOT_A_NAME = -2
"""Stand for the code of a name that is missing, or is none."""

_NAME = re.compile(NAME_PATTERN)
_PLAIN = r"^[ -~]*[!-~][ -~]*$"


def _all_plain(raw: pa.Array) -> bool:
    """Say whether all of these are printable ASCII, not blank and not too long.

    Then each is a name.
    """
    short = pc.max(pc.binary_length(raw)).as_py() or 0
    return short <= MAX_NAME and bool(
        pc.all(pc.match_substring_regex(raw, _PLAIN), min_count=0).as_py()
    )


def _valid_name(raw: bytes) -> str | None:
    r"""Read the name of an agent.

    None if it is not UTF-8, blank, too long, holds control characters, or is not in Unicode's NFC:
    in two spellings an agent would have two budgets.

    Examples
    --------
    >>> _valid_name(b"N14228"), _valid_name(b"a\x00b"), _valid_name(b" "), _valid_name(b"x" * 300)
    ('N14228', None, None, None)
    >>> _valid_name("Ren\u00e9".encode()), _valid_name("Rene\u0301".encode())
    ('René', None)
    """
    try:
        name = raw.decode()
    except UnicodeDecodeError:
        return None

    shaped = len(name) <= MAX_NAME and _NAME.fullmatch(name) and is_normalized("NFC", name)

    if shaped:
        return name
    return None


def names_in_one_spelling(texts: pa.Array) -> Bools:
    r"""Say which texts are in Unicode's NFC; those of ASCII are, and a missing one says nothing.

    Examples
    --------
    >>> names_in_one_spelling(pa.array(["ann", "Ren\u00e9", "Rene\u0301", None])).tolist()
    [True, True, False, True]
    """
    # Python's own: what Arrow calls NFC does not compose.
    good = np.ones(len(texts), np.bool_)
    other = pc.invert(pc.string_is_ascii(texts)).fill_null(False)
    places = np.flatnonzero(other.to_numpy(zero_copy_only=False))
    for place, text in zip(places.tolist(), texts.filter(other).to_pylist(), strict=True):
        good[place] = is_normalized("NFC", text)

    return good


class NameDirectory:
    """Numbers the names of a source in the order in which they come; begins again when it is full.

    Attributes
    ----------
    names : list of str
        By code. Anyone who was given codes keeps the list that they belong to.

    Examples
    --------
    >>> directory = NameDirectory()
    >>> directory.lookup(pa.array([b"ann", b"", b"bob", b"ann", None])).tolist(), directory.names
    ([0, -1, 1, 0, -1], ['ann', 'bob'])
    """

    def __init__(self) -> None:
        self._begin()

    def make_room(self) -> None:
        """Forget all names if there are as many as there may be."""
        if len(self.names) >= MAX_DIRECTORY:
            self._begin()

    def _begin(self) -> None:
        self.names: list[str] = []
        self._codes: dict[bytes, int] = {}
        self._table = CompiledNameTable() if COMPILED else NameHashTable()
        self._texts: dict[str, int] = {}

    def lookup_texts(self, texts: list[str]) -> Ints:
        """Codes of the agents of these names, as `lookup` gives them.

        Faster where the texts are there already.
        """
        first = len(self._texts)
        self._texts.update(zip(self.names[first:], range(first, len(self.names)), strict=True))
        codes = np.fromiter(map(self._texts.get, texts, itertools.repeat(-1)), np.int64, len(texts))
        unknown = np.flatnonzero(codes < 0)

        if len(unknown):
            named = pa.array([texts[i] for i in unknown.tolist()], pa.string())
            codes[unknown] = self._enter_all(
                named.cast(pa.binary())
            )  # the table has them when it is asked next

        return codes

    def lookup(self, texts: pa.Array) -> Ints:
        """Codes of the agents of these names, in order.

        Where a name is bad, `NO_NAME` or `NOT_A_NAME`.
        """
        codes = self._table.find(texts)
        unknown = np.flatnonzero(codes < 0)
        if len(unknown):
            codes[unknown] = self._enter_all(texts.take(pa.array(unknown)))
            if len(self.names) > len(self._table):
                self._table.add(list(itertools.islice(self._codes, len(self._table), None)))

        return codes

    def _enter_all(self, texts: pa.Array) -> Ints:
        """Find each distinct name in the directory, or enter it."""
        encoded = texts.dictionary_encode()
        distinct = encoded.dictionary.to_pylist()
        lookup = list(map(self._codes.get, distinct))
        if all(code is None for code in lookup) and _all_plain(encoded.dictionary):
            codes = range(len(self.names), len(self.names) + len(distinct))
            self._codes.update(zip(distinct, codes, strict=True))
            self.names.extend(encoded.dictionary.cast(pa.string()).to_pylist())
            lookup = list(codes)
        else:
            lookup = [
                self._enter(raw) if code is None else code
                for raw, code in zip(distinct, lookup, strict=True)
            ]

        at: Ints = encoded.indices.fill_null(len(distinct)).to_numpy(zero_copy_only=False)
        return np.array([*lookup, NO_NAME], np.int64)[at]

    def _enter(self, raw: bytes) -> int:
        name = _valid_name(raw)
        if name is None:
            return NOT_A_NAME if raw else NO_NAME  # not remembered: there is no end of bad names
        self._codes[raw] = len(self.names)
        self.names.append(name)

        return self._codes[raw]
