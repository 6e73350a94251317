"""Google's client of Pub/Sub, imported here and nowhere else."""

from __future__ import annotations

from typing import Any

from google.cloud import pubsub_v1


def make_pubsub_publisher() -> Any:
    """Connect a publisher that keeps the order of messages of one key.

    To the emulator, where one is named.
    """
    options = pubsub_v1.types.PublisherOptions(enable_message_ordering=True)
    return pubsub_v1.PublisherClient(publisher_options=options)
