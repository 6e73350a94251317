"""Takes the pictures of README and docs.

`make pictures`, light and dark, of one run over a year of flights.

The page and the report are screenshots of a browser. Grafana is on no package index, so that a
dashboard is drawn from its own queries, answered by a Prometheus that scraped the run
(`docs/pictures/boards.py`).
"""

from __future__ import annotations

import argparse
import base64
import io
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pandas as pd
from PIL import Image

from docs.pictures.boards import board_picture
from meanstream import private_means
from tests.servers.support.broker import free_ports
from tests.servers.support.browser import as_new, opened_browser, until
from tests.servers.support.prometheus import Prometheus

HERE = Path(__file__).parent
MEANSTREAM = Path(sys.executable).with_name("meanstream")
SECRET = "7c1e94b05fa3d2681be60c9d37f25a84"  # public: the pictures can be repeated
CHUNKS = 52
AGENT = "N228JB"
WIDTH = 1240
LARGEST = 150_000
BOARD, LINES = "convergence", 24
"""A dashboard, and how many lines of Grafana's grid its picture shows."""
OPTIONS = "--source - --lower -30 --upper 120 --epsilon 1 --delta 1e-6 --name flights --refresh 7d --lateness 1h"


def save_picture(name: str, png: bytes) -> None:
    """Write a picture, with fewer colors if it is large.

    One that is too large even so is refused.
    """
    picture = Image.open(io.BytesIO(png)).convert("RGB")
    for used in (
        picture,
        picture.quantize(200, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE),
    ):
        out = io.BytesIO()
        used.save(out, "PNG", optimize=True)
        if len(out.getvalue()) <= LARGEST:
            (HERE / f"{name}.png").write_bytes(out.getvalue())
            print(f"docs/pictures/{name}.png {len(out.getvalue()):,} bytes")
            return
    raise SystemExit(f"{name} has {len(out.getvalue()):,} bytes, at most {LARGEST:,}")


def read_flights(folder: Path) -> pd.DataFrame:
    """Fetch the flights with a delay, in the order of their times."""
    path = folder / "flights.csv"
    subprocess.run([MEANSTREAM, "demo", "flights", path], check=True, stdout=subprocess.DEVNULL)
    return (
        pd.read_csv(path)[["tailnum", "dep_delay", "time_hour"]]
        .dropna()
        .sort_values("time_hour", kind="stable")
    )


@contextmanager
def running_engine(folder: Path, *more: str) -> Iterator[subprocess.Popen[str]]:
    """Run an engine that reads a pipe."""
    command = [
        MEANSTREAM,
        "run",
        "agents",
        *OPTIONS.split(),
        "--store",
        "state.db",
        "--quiet",
        *more,
    ]
    command += ["--sink", "estimates.jsonl", "--releases", "releases.jsonl"]
    environment = os.environ | {"MEANSTREAM_SECRET": SECRET}
    log = (folder / "engine.log").open("w")
    engine = subprocess.Popen(
        command, cwd=folder, env=environment, text=True, stdin=subprocess.PIPE, stderr=log
    )
    try:
        yield engine
    finally:
        engine.kill()
        engine.wait()
        log.close()


def feed(engine: subprocess.Popen[str], flights: pd.DataFrame, seconds: float) -> None:
    """Write the flights as JSON lines, evenly over some seconds."""
    rows = flights.rename(columns={"tailnum": "agent", "dep_delay": "value", "time_hour": "time"})
    assert engine.stdin is not None
    for number in range(CHUNKS):
        part = rows.iloc[number * len(rows) // CHUNKS : (number + 1) * len(rows) // CHUNKS]
        engine.stdin.write(part.to_json(orient="records", lines=True))
        engine.stdin.flush()
        time.sleep(seconds / CHUNKS)


def screenshot(driver: Any, last: str = "body") -> bytes:
    """Take a picture of a page down to the end of an element."""
    end = driver.execute_script(
        f"return document.querySelector('{last}').getBoundingClientRect().bottom + scrollY"
    )
    clip = {"x": 0, "y": 0, "width": WIDTH, "height": end + 12, "scale": 1}
    taken = driver.execute_cdp_cmd(
        "Page.captureScreenshot", {"captureBeyondViewport": True, "clip": clip}
    )
    return base64.b64decode(taken["data"])


def take_page(driver: Any, address: str, events: int) -> None:
    """Take pictures of the live page, with an agent that is looked up."""
    for look in ("light", "dark"):
        as_new(driver, width=WIDTH, dark=look == "dark").get(address)
        until(lambda: driver.execute_script("return figures && figures.counts.events") == events)
        driver.execute_script(f"byId('name').value = '{AGENT}'; byId('search').requestSubmit();")
        until(
            lambda: driver.execute_script(
                "return document.querySelectorAll('#agent .main-svg').length"
            )
        )
        time.sleep(2)
        save_picture(f"page-{look}", screenshot(driver))
        save_picture(f"page-top-{look}", screenshot(driver, "#convergence-card"))


def take_report(driver: Any, folder: Path) -> None:
    """Take pictures of the report on the store."""
    command = [MEANSTREAM, "report", "report.html", "--store", "state.db"]
    subprocess.run(
        command,
        cwd=folder,
        check=True,
        stdout=subprocess.DEVNULL,
        env=os.environ | {"MEANSTREAM_SECRET": SECRET},
    )
    for look in ("light", "dark"):
        as_new(driver, width=WIDTH, dark=look == "dark").get(f"file://{folder}/report.html")
        save_picture(f"report-{look}", screenshot(driver, "section:nth-of-type(3)"))


def take_plot(flights: pd.DataFrame) -> None:
    """Draw the private means of aircraft, as `found.plot()` does."""
    from matplotlib import pyplot, style

    os.environ["MEANSTREAM_SECRET"] = SECRET
    found = private_means(
        flights, by="tailnum", value="dep_delay", lower=-30, upper=120, epsilon=1, delta=1e-6
    )
    for look, used in (("light", "default"), ("dark", "dark_background")):
        with style.context(used):
            out = io.BytesIO()
            found.plot(unit="minutes").figure.savefig(out, dpi=110, bbox_inches="tight")
            pyplot.close("all")
        save_picture(f"plot-{look}", out.getvalue())


def take_run(folder: Path, flights: pd.DataFrame, seconds: float) -> None:
    """Take the pictures of a run: while it lives, and of the store that it leaves."""
    page, metrics, private = (f"127.0.0.1:{port}" for port in free_ports(3))
    served = ("--page", page, "--metrics", metrics, "--private-metrics", private)
    with (
        opened_browser() as driver,
        Prometheus(folder / "prometheus", metrics) as prometheus,
        running_engine(folder, *served) as engine,
    ):
        began = time.time()
        address = (
            until(lambda: next(iter(folder.glob("state.db.page*")), None)).read_text().split()[-1]
        )
        feed(engine, flights, seconds)
        take_page(driver, address, len(flights))
        for look in ("light", "dark"):
            drawn = board_picture(
                BOARD, prometheus.url, (began, time.time()), LINES, dark=look == "dark"
            )
            save_picture(f"board-{look}", drawn)
        assert engine.stdin is not None
        engine.stdin.close()
        if engine.wait(600):
            raise SystemExit((folder / "engine.log").read_text())
        take_report(driver, folder)


def main() -> None:
    """Take all pictures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--seconds", type=float, default=90, help="seconds over which the year is fed"
    )
    seconds = parser.parse_args().seconds
    with tempfile.TemporaryDirectory() as folder:
        flights = read_flights(Path(folder))
        take_plot(flights)
        take_run(Path(folder), flights, seconds)


if __name__ == "__main__":
    main()
