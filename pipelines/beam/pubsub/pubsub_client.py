"""Google's client of Pub/Sub, imported here and nowhere else, and the names that it takes."""

from __future__ import annotations

import importlib.util
import re
from typing import Any

from meanstream.operators.validation import require

_NAME = r"projects/[a-z][-a-z0-9:.]{4,61}[a-z0-9]/%s/[A-Za-z][-A-Za-z0-9._~+%%]{2,254}"


def check_pubsub_name(role: str, kind: str, name: str) -> str:
    """Check the full name of a topic or a subscription; return its last part.

    Examples
    --------
    >>> check_pubsub_name("topic", "topics", "projects/my-project/topics/means")
    'means'
    >>> check_pubsub_name("topic", "topics", "means")
    Traceback (most recent call last):
    ValueError: topic must be projects/PROJECT/topics/NAME, got 'means'
    """
    require(
        re.fullmatch(_NAME % kind, name) is not None, role, f"be projects/PROJECT/{kind}/NAME", name
    )

    if not _has_client():
        raise ValueError(f"{role} needs google-cloud-pubsub: pip install 'meanstream[gcp]'")
    return name.rpartition("/")[2]


def _has_client() -> bool:
    try:
        return importlib.util.find_spec("google.cloud.pubsub_v1") is not None
    except ModuleNotFoundError:
        return False


def make_pubsub_publisher() -> Any:
    """Connect a publisher that keeps the order of messages of one key.

    To the emulator, where one is named.
    """
    from google.cloud import pubsub_v1

    options = pubsub_v1.types.PublisherOptions(enable_message_ordering=True)
    return pubsub_v1.PublisherClient(publisher_options=options)
