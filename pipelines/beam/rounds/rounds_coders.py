"""Bytes of what moves between the steps of a round.

Compact, versioned, the same for the same data; never pickle.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from apache_beam import coders
from apache_beam.coders import typecoders

from meanstream.pipelines.beam.element_types.events import (
    VERSION,
    DamagedBytesError,
    EventCoder,
)
from meanstream.pipelines.beam.rounds.rounds_elements import (
    ForRound,
    ReportBatch,
    UserBatch,
    UserSamples,
)
from meanstream.streaming.events.round_events import StageResult, WindowEstimate
from meanstream.streaming.rounds.summarize_users import SUMS, UserSums
from meanstream.streaming.rounds.window_widths import Window

_HEAD = struct.Struct("<BBqqqqq")
_SUMS = SUMS[1:]


class UserBatchCoder(coders.Coder):  # type: ignore[misc]
    """Private: sums of users, a row each of vectors, of functions of a value, or of small counts of categories."""

    def encode(self, value: UserBatch) -> bytes:
        """Columns one after the other."""
        columns = value.sums.columns()
        total = value.sums.total
        arrays = [value.words, *(columns[name] for name in _SUMS)]
        narrow = total.itemsize if total.dtype.kind == "u" else 0

        return _packed(b"u", value.window, (len(value), _width(total), narrow), arrays, value.names)

    def decode(self, encoded: bytes) -> UserBatch:
        """Read columns."""
        window, (n, width, narrow), data, at = _opened(encoded, b"u")
        words, at = _array(data, at, np.uint64, (n, 2))
        columns = {"user": np.arange(n)}
        kinds = {"total": f"<u{narrow}"} if narrow else {}

        for name in _SUMS:
            wide = width if name == "total" or (name == "first" and not narrow) else 0
            columns[name], at = _array(data, at, kinds.get(name, np.int64), _shape(n, wide))

        return UserBatch(
            window=window, names=_names(data, at, n), words=words, sums=UserSums(**columns)
        )

    def is_deterministic(self) -> bool:
        """Equal data, equal bytes."""
        return True


class UserSamplesCoder(coders.Coder):  # type: ignore[misc]
    """Private: samples of users, with the hashes of their ids."""

    def encode(self, value: UserSamples) -> bytes:
        """Columns one after the other."""
        numbers = value.n_samples, _width(value.value), len(value.words)
        arrays: list[npt.NDArray[Any]] = [value.words, value.user.astype(np.uint32)]
        arrays += [value.value, value.time, value.key, value.position]
        return _packed(b"i", value.window, numbers, arrays, value.names)

    def decode(self, encoded: bytes) -> UserSamples:
        """Read columns."""
        window, (n, width, users), data, at = _opened(encoded, b"i")
        words, at = _array(data, at, np.uint64, (users, 2))
        user, at = _array(data, at, np.uint32, (n,))
        value, at = _array(data, at, np.float64, _shape(n, width))
        time, at = _array(data, at, np.float64, (n,))
        key, at = _array(data, at, np.uint64, (n,))
        position, at = _array(data, at, np.int64, (n,))
        names = _names(data, at, users)

        return UserSamples(
            window=window, names=names, words=words, user=user.astype(np.int64), value=value, time=time, key=key,
            position=position,
        )  # fmt: skip

    def is_deterministic(self) -> bool:
        """Equal data, equal bytes."""
        return True


class ForRoundCoder(coders.Coder):  # type: ignore[misc]
    """Private: sums of users, or samples that have ids."""

    def encode(self, value: ForRound) -> bytes:
        """Write it as what it is."""
        return _coder_of(type(value)).encode(value)  # type: ignore[no-any-return]

    def decode(self, encoded: bytes) -> ForRound:
        """Read it as what it says it is."""
        kind = UserSamples if encoded[1:2] == b"i" else UserBatch
        return _coder_of(kind).decode(encoded)  # type: ignore[no-any-return]

    def is_deterministic(self) -> bool:
        """Equal data, equal bytes."""
        return True


class ReportBatchCoder(coders.Coder):  # type: ignore[misc]
    """Public: reports of users."""

    def encode(self, value: ReportBatch) -> bytes:
        """Columns one after the other; the number of columns of a report is its width."""
        n, width = value.reports.shape
        numbers = np.array([n, width], np.int64)
        return _packed(
            b"r", value.window, (n, value.stage, value.users), [numbers, value.reports], value.names
        )

    def decode(self, encoded: bytes) -> ReportBatch:
        """Read columns."""
        window, (n, stage, users), data, at = _opened(encoded, b"r")
        numbers, at = _array(data, at, np.int64, (2,))
        reports, at = _array(data, at, np.int64, (n, int(numbers[1])))
        return ReportBatch(
            window=window, stage=stage, users=users, names=_names(data, at, n), reports=reports
        )

    def is_deterministic(self) -> bool:
        """Equal data, equal bytes."""
        return True


class WindowEstimateCoder(EventCoder):
    """Public: the answer of a window."""

    kind = WindowEstimate


class StageResultCoder(EventCoder):
    """Public: what a stage found."""

    kind = StageResult


CODERS: dict[type, type[coders.Coder]] = {
    ForRound: ForRoundCoder,
    UserBatch: UserBatchCoder,
    UserSamples: UserSamplesCoder,
    ReportBatch: ReportBatchCoder,
    WindowEstimate: WindowEstimateCoder,
    StageResult: StageResultCoder,
}
"""The coder of each type that a round puts into a PCollection."""

for _kind, _coder in CODERS.items():
    typecoders.registry.register_coder(_kind, _coder)


def _coder_of(kind: type) -> coders.Coder:
    if kind not in (UserBatch, UserSamples):
        raise TypeError(f"round takes sums of users or their samples, got {kind.__name__}")
    return CODERS[kind]()


def _width(array: npt.NDArray[Any]) -> int:
    """Columns of an array; 0 for one without."""
    return 0 if array.ndim == 1 else array.shape[1]


def _shape(n: int, width: int) -> tuple[int, ...]:
    return (n, width) if width else (n,)


def _packed(
    kind: bytes,
    window: Window,
    numbers: tuple[int, int, int],
    arrays: Sequence[npt.NDArray[Any]],
    names: pa.Array,
) -> bytes:
    names = names if names.type == pa.large_string() else names.cast(pa.large_string())
    _, ends, data = names.buffers()
    edges = (
        np.frombuffer(ends, np.int64, len(names) + 1, 8 * names.offset)
        if len(names)
        else np.zeros(1, np.int64)
    )
    text = b"" if data is None else memoryview(data)[edges[0] : edges[-1]]

    parts = [
        _HEAD.pack(VERSION, kind[0], *window, *numbers),
        *(array.tobytes() for array in arrays),
    ]

    return b"".join([*parts, (edges[1:] - edges[:-1]).astype(np.int32).tobytes(), text])


def encoded_window(encoded: bytes) -> Window:
    """Read the window of a batch, and nothing else of it."""
    return _opened(encoded, b"u")[0]


def _opened(encoded: bytes, kind: bytes) -> tuple[Window, tuple[int, int, int], bytes, int]:
    if len(encoded) < _HEAD.size or encoded[0] != VERSION or encoded[1] != kind[0]:
        raise DamagedBytesError(f"intermediate data must be of version {VERSION}, got others")
    _, _, start, end, *numbers = _HEAD.unpack_from(encoded)
    return Window(start, end), (numbers[0], numbers[1], numbers[2]), encoded, _HEAD.size


def _array(
    data: bytes, at: int, dtype: npt.DTypeLike, shape: tuple[int, ...]
) -> tuple[npt.NDArray[Any], int]:
    array = np.frombuffer(data, dtype, math.prod(shape), at).reshape(shape)
    return array, at + array.nbytes


def _names(data: bytes, at: int, n: int) -> pa.Array:
    lengths, at = _array(data, at, np.int32, (n,))
    offsets = np.zeros(n + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(data).slice(at)]

    return pa.Array.from_buffers(pa.large_string(), n, buffers)
