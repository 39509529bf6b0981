"""Debian's chromium, driven by Playwright, for tests of the pages."""

from __future__ import annotations

import importlib.util
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from playwright.sync_api import Browser

CHROMIUM = "/usr/bin/chromium"


def missing() -> str:
    """Why no browser can be driven here; "" where it can."""
    if importlib.util.find_spec("playwright") is None:
        return "playwright is not installed (the extra test)"
    if importlib.util.find_spec("axe_playwright_python") is None:
        return "axe-playwright-python is not installed (the extra test)"
    return "" if shutil.which(CHROMIUM) else "chromium is not installed (apt-get install chromium)"


@contextmanager
def browser(*options: str) -> Iterator[Browser]:
    """A chromium without a window, with these options."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        # The sandbox needs namespaces that a container, and root, may not have.
        chromium = playwright.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox", "--disable-dev-shm-usage", *options]
        )
        try:
            yield chromium
        finally:
            chromium.close()


def violations(page: Any) -> list[str]:
    """The serious findings of axe-core about a page, a line each."""
    from axe_playwright_python.sync_playwright import Axe

    findings = Axe().run(page).response["violations"]
    return [
        f"{finding['id']}: {finding['help']}: {finding['nodes'][0]['html']}"
        for finding in findings
        if finding["impact"] in ("serious", "critical")
    ]
