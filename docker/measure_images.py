"""Sizes and start times of the images.

`python docker/measure_images.py`, as root, after `make images`.

Sizes are those of all files, and of what each image adds to its base. A start is from `crun run` to
the end of `meanstream --version`, and to the first answer of the engine's health check; the middle
of five.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.servers.support.broker import free_ports
from tests.servers.support.images import IMAGES, Container, Images, missing
from tests.servers.support.wait_until import wait_until

STARTS = 5
OPTIONS = [
    "--lower",
    "0",
    "--upper",
    "1",
    "--epsilon",
    "1",
    "--delta",
    "1e-6",
    "--source",
    "samples.jsonl",
    "--follow",
]


def seconds_of_version(images: Images) -> float:
    """Run `meanstream --version`."""
    began = time.monotonic()
    with Container(images, "engine", ["--version"]) as container:
        code, _, errors = container.wait()
    if code:
        raise RuntimeError(errors)
    return time.monotonic() - began


def seconds_until_healthy(images: Images, folder: Path) -> float:
    """Start an engine on an empty file that grows, and ask until it answers."""
    (port,) = free_ports(1)
    folder.mkdir()
    (folder / "samples.jsonl").touch()
    for path in (folder, folder / "samples.jsonl"):
        path.chmod(0o777)
    began = time.monotonic()
    arguments = ["run", "agents", *OPTIONS, "--metrics", f"127.0.0.1:{port}", "--store", "state.db"]
    with Container(
        images, "engine", arguments, volumes={"/var/lib/meanstream": folder}
    ) as container:
        wait_until(lambda: container.healthy(port), 120)
        found = time.monotonic() - began
        container.signal("TERM")
        container.wait()
    return found


def main() -> None:
    """Build, measure, print."""
    if (reason := missing()) is not None:
        raise SystemExit(reason)
    with tempfile.TemporaryDirectory() as folder, Images(Path(folder) / "built") as images:
        base = images.size("base")
        print(f"base: {base / 1e6:.0f} MB")
        for name in IMAGES:
            images.build(name)
            size = images.size(name)
            print(f"{name}: {size / 1e6:.0f} MB, {(size - base) / 1e6:.0f} MB over its base")
        version = [seconds_of_version(images) for _ in range(STARTS)]
        healthy = [
            seconds_until_healthy(images, Path(folder) / f"state-{i}") for i in range(STARTS)
        ]
        middle = [statistics.median(found) for found in (version, healthy)]
        print("engine: --version in {:.1f} s, healthy after {:.1f} s".format(*middle))


if __name__ == "__main__":
    main()
