"""What a store is filled from: the first that is noted stays."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from meanstream.streaming.store.source_identity import keep_source_identity_in, source_identity_of
from tests.streaming.store.conftest import open_store

TOPIC = {"source": "orders", "cluster": "c", "column_id": "id"}


def test_a_store_that_goes_on_for_another_is_filled_from_what_that_one_was(tmp_path: Path) -> None:
    with closing(open_store(tmp_path)) as store:
        assert source_identity_of(store) is None
        with store.transaction():
            keep_source_identity_in(store, TOPIC)
        assert source_identity_of(store) == TOPIC
        with store.transaction():
            keep_source_identity_in(store, {**TOPIC, "source": "refunds"})  # its own stays
    with closing(open_store(tmp_path)) as store:
        assert source_identity_of(store) == TOPIC
