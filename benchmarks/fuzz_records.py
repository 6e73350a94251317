"""Generated records of every format.

Whether the fate of any depends on its neighbors or on the size of the batch.

Run from the repository: `make fuzz`, or
`python benchmarks/fuzz_records.py --records 1000000 --seed 1`. Each record is read by a parser of
its own and in files (CSV, JSONL, Parquet) and messages (JSON, nested JSON, cloud events, Avro)
among others, in batches of three sizes. Prints one JSON object, and ends with exit code 1 if any
record's fate differed.
"""

from __future__ import annotations

import argparse
import json
import sys
import time

from tests.fuzz.fuzzed_records import Findings, fuzz_records


def main() -> None:
    """Measure, and print what was found by area."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    began = time.perf_counter()
    found = Findings()
    for found in fuzz_records(options.seed, options.records):  # noqa: B007 - the last one is reported
        pass

    report = {
        "seed": options.seed,
        "records": dict(found.records),
        "samples_among_them": dict(found.used),
        "fates_changed": dict(found.faults),
        "examples": found.examples,
        "seconds": round(time.perf_counter() - began, 1),
    }
    print(json.dumps(report))

    sys.exit(1 if found.faults else 0)


if __name__ == "__main__":
    main()
