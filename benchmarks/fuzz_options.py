"""Bad values of every option of every command.

Each is refused in one line before anything is begun, or taken.

Run from the repository: `make fuzz`, or `python benchmarks/fuzz_options.py --values 3000 --seed 1`.
Prints one JSON object, and ends with exit code 1 if a command ended in any other way.
"""

from __future__ import annotations

import argparse
import json
import sys
import time

from tests.fuzz.fuzzed_options import fuzz_options


def main() -> None:
    """Try so many values, and print how the commands ended."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--values", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    began = time.perf_counter()
    found = fuzz_options(options.seed, options.values)

    report = {
        "seed": options.seed,
        "values": options.values,
        "commands_ended": dict(found.ended),
        "faults": dict(found.faults),
        "examples": found.examples,
        "seconds": round(time.perf_counter() - began, 1),
    }
    print(json.dumps(report))

    sys.exit(1 if found.faults else 0)


if __name__ == "__main__":
    main()
