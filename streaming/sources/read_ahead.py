"""The next batch decoded in the background while the last one is worked on."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor

from meanstream.operators.validation import require
from meanstream.streaming.events.event_columns import Batch, Position
from meanstream.streaming.sources.source_protocol import Source


class ReadAhead:
    """Reads a bounded source one batch ahead, in one thread.

    What it gives and where it resumes are the source's.

    Memory is bounded by one batch more. A batch that was read and not asked for leaves no trace:
    its position goes with it.

    Parameters
    ----------
    source : Source
        A bounded source, which no one else may use from now on.
    """

    bounded = True
    at_hand = True

    def __init__(self, source: Source) -> None:
        self.name = source.name
        self._source = source
        self._thread = ThreadPoolExecutor(1, f"read-ahead {source.name}")
        self._next: tuple[int, Future[Batch]] | None = None

    def next_batch(self, max_samples: int) -> Batch:
        """Give what was read ahead, and begin to read what follows; an error comes in its turn."""
        asked, coming = self._next or self._begin(max_samples)
        require(asked == max_samples, "max_samples", f"stay {asked}", max_samples)
        batch = coming.result()
        self._next = None if batch.exhausted else self._begin(max_samples)

        return batch

    def restore(self, position: Position) -> None:
        """Continue after the batch that this position came with."""
        if self._next is not None:
            self._next[1].exception()  # it is thrown away
            self._next = None

        self._source.restore(position)

    def close(self) -> None:
        """Wait for the thread, and close the source."""
        self._thread.shutdown(cancel_futures=True)
        self._source.close()

    def _begin(self, max_samples: int) -> tuple[int, Future[Batch]]:
        return max_samples, self._thread.submit(self._source.next_batch, max_samples)
