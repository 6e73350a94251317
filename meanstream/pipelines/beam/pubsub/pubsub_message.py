"""What the runner gives of a message, as bytes of ours: Beam would pickle its own class."""

from __future__ import annotations

import struct

from apache_beam import coders
from apache_beam.coders import typecoders
from apache_beam.io.gcp.pubsub import PubsubMessage

from meanstream.pipelines.beam.element_types.events import VERSION, DamagedBytesError

_HEAD = struct.Struct("<BI")


class Message(PubsubMessage):  # type: ignore[misc]
    """Private: names Beam's messages where this coder is to write them; there are none of this class."""


class MessageCoder(coders.Coder):  # type: ignore[misc]
    """Private: a message's data and id. Attributes, times and the ordering key stay behind: nobody reads them."""

    def encode(self, value: PubsubMessage) -> bytes:
        """Id, then data."""
        name = (value.message_id or "").encode()
        return _HEAD.pack(VERSION, len(name)) + name + (value.data or b"")

    def decode(self, encoded: bytes) -> PubsubMessage:
        """Split them."""
        if len(encoded) < _HEAD.size or encoded[0] != VERSION:
            raise DamagedBytesError(f"message must be of version {VERSION}, got others")
        end = _HEAD.size + _HEAD.unpack_from(encoded)[1]
        return PubsubMessage(encoded[end:], {}, message_id=encoded[_HEAD.size : end].decode())

    def is_deterministic(self) -> bool:
        """Equal data, equal bytes."""
        return True


typecoders.registry.register_coder(Message, MessageCoder)
