"""What msgspec raises where a line that others may have written cannot be read."""

from __future__ import annotations

import msgspec

UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
"""Text that is not what was agreed on; bytes that are no UTF-8; brackets within brackets, also in a
field that no one reads."""
