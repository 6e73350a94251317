"""What the command may do to a process that is its own, and to no other in which someone runs an engine."""

from __future__ import annotations

import os
import sys
from importlib.abc import MetaPathFinder
from typing import Any

_own = False


def mark_own_process() -> None:
    """Note that this process was started for the command."""
    global _own  # noqa: PLW0603 - a fact of the process
    _own = True


def keep_algebra_in_one_thread() -> None:
    """Let OpenBLAS use one thread, if no one has said how many; before NumPy is imported.

    The matrices of an engine are small: threads of OpenBLAS would wait for one another, spinning, on processors that
    the clients of brokers need.
    """
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")


def keep_arrow_from_pandas() -> None:
    """Let pyarrow find no pandas, in a process of our own that has not imported it.

    pyarrow imports pandas at its first array, if it is installed, to know its frames: a fifth of the time in which an
    engine starts again, and there are no frames here. It asks once; anyone who else imports pandas later finds it.
    """
    if not _own or "pandas" in sys.modules:
        return
    import pyarrow as pa

    nobody = _NoPandas()
    sys.meta_path.insert(0, nobody)
    try:
        pa.array([0])
    finally:
        sys.meta_path.remove(nobody)


class _NoPandas(MetaPathFinder):
    def find_spec(self, fullname: str, *_: Any) -> None:
        """Refuse pandas, and leave all else to others."""
        if fullname == "pandas":
            raise ModuleNotFoundError(fullname)
