"""The embedded engine: events, sources, sinks, ledger and snapshot store around the operators, in one process."""

import logging

logging.getLogger("meanstream").addHandler(logging.NullHandler())  # who wants our records says where to
