"""The embedded engine.

Events, sources, sinks, ledger and snapshot store around the operators, in one process.
"""

import logging

if __name__ != "meanstream.streaming":
    raise ImportError(
        f"{__name__} is imported by its full name: import meanstream.streaming instead"
    )

logging.getLogger("meanstream").addHandler(
    logging.NullHandler()
)  # who wants our records says where to
