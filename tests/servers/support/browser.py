"""A real browser: Chromium without a window, and what it asked the network for."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

from tests.servers.support.wait_until import wait_until

ARGUMENTS = (
    "--headless=new",
    "--no-sandbox",  # containers have no user namespaces
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--no-first-run",
)
SECONDS = 180.0


def missing() -> str | None:
    """Say what a machine has not."""
    absent = [name for name in ("chromium", "chromedriver") if shutil.which(name) is None]
    return f"no {' and no '.join(absent)}: apt install chromium chromium-driver" if absent else None


@contextmanager
def opened_browser() -> Iterator[Any]:
    """Open a browser; the programs are those of the machine, and nothing is downloaded."""
    from selenium import webdriver
    from selenium.webdriver.chrome.options import Options
    from selenium.webdriver.chrome.service import Service

    options = Options()
    options.binary_location = str(shutil.which("chromium"))
    for argument in ARGUMENTS:
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"performance": "ALL", "browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(str(shutil.which("chromedriver"))))
    try:
        yield driver
    finally:
        driver.quit()


def as_new(driver: Any, *, width: int = 1600, dark: bool = False) -> Any:
    """Make an open browser one that has seen nothing: no page, no cookie, nothing in its logs."""
    driver.get("about:blank")
    driver.execute_cdp_cmd("Network.clearBrowserCookies", {})
    feature = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    for log in ("performance", "browser"):
        driver.get_log(log)  # which empties it
    return driver


def hosts_asked(driver: Any) -> set[str]:
    """Tell the hosts of all requests of the pages so far."""
    hosts = set()
    for entry in driver.get_log("performance"):
        message = json.loads(entry["message"])["message"]
        if message["method"] == "Network.requestWillBeSent":
            url = urlsplit(message["params"]["request"]["url"])
            if url.scheme not in ("data", "blob"):
                hosts.add(str(url.hostname))
    return hosts


def complaints(driver: Any) -> list[str]:
    """Tell what the console says."""
    return [entry["message"] for entry in driver.get_log("browser")]


def until(condition: Callable[[], Any]) -> Any:
    """Wait for something to be true, and give it."""
    return wait_until(condition, SECONDS, every=0.1)
