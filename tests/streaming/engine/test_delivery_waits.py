"""How long the engine waits before it tries a delivery again: quickly at first, and never more than
seconds."""

from __future__ import annotations

from itertools import islice

from meanstream.streaming.engine.engine_delivery import FIRST_WAITS, _back_off


def test_waits_grow_to_the_last_one_and_stay_there() -> None:
    assert list(FIRST_WAITS) == sorted(FIRST_WAITS)
    assert list(islice(_back_off(), len(FIRST_WAITS) + 2)) == [
        *FIRST_WAITS,
        FIRST_WAITS[-1],
        FIRST_WAITS[-1],
    ]
    assert FIRST_WAITS[0] < 1 < FIRST_WAITS[-1] < 10
