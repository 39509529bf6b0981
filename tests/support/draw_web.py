"""The pictures of the pages of `watch --web` and `lab --web` in docs/howto/pictures.

`python -m tests.support.draw_web` needs Debian's chromium. It shows the bundled server under load
in the middle of a switch in stages, in light and in dark, and an experiment that was run.
"""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tests.support.browser import browser
from tests.support.draw_watch import MARKER, PICTURES, SECONDS, loaded_server
from tests.support.pages import served
from tests.support.programs import ROOT

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

SIZE = {"width": 1100, "height": 1600}
_GAP = 6


@contextmanager
def opened(chromium: Browser, url: str, scheme: str) -> Iterator[Page]:
    """A page in a browser of its own."""
    context = chromium.new_context(color_scheme=scheme, viewport=SIZE)  # type: ignore[arg-type]
    page = context.new_page()
    page.goto(url)
    yield page
    context.close()


def shown(page: Page, selector: str, text: str) -> None:
    """Wait until this part has this text."""
    page.locator(selector).filter(has_text=re.compile(text)).wait_for()


def save(page: Page, name: str, last: str) -> None:
    """Take the picture, as high as it has to be for this part to be the last one in it."""
    part, bar = (page.locator(selector).bounding_box() for selector in (last, "#message"))
    assert part and bar
    height = part["y"] + part["height"] + _GAP + bar["height"]
    page.set_viewport_size({"width": SIZE["width"], "height": round(height)})
    path = PICTURES / f"{name}.png"
    page.screenshot(path=path)
    print(path.relative_to(ROOT), path.stat().st_size, file=sys.stderr)


def draw_watch(chromium: Browser) -> None:
    """Draw both schemes, with a stage made in each."""
    with (
        loaded_server() as server,
        served("watch", server.pid, "--bench", "bench/results/bench.json.gz") as view,
    ):
        for scheme in ("light", "dark"):
            with opened(chromium, view.url, scheme) as page:
                page.get_by_role("button", name=MARKER, exact=True).click()
                shown(page, "#name", MARKER)
                page.locator("#mode").select_option("int3")
                page.locator("[data-do=on]").click()
                shown(page, "#message", "is on")
                time.sleep(SECONDS)
                page.locator("#mode").select_option("jump")
                page.locator("[data-do=step]").click()
                shown(page, "#message", "n makes the next")
                page.locator("[data-do=step]").click()
                shown(page, "#code mark", "00")
                save(page, f"web-watch-{scheme}", "#stages > li:first-child")
                page.locator("[data-do=undo]").click()
                shown(page, "#message", "taken back")


def draw_lab(chromium: Browser) -> None:
    """Draw an experiment that was predicted and run."""
    with served("lab") as view, opened(chromium, view.url, "light") as page:
        page.locator("[data-letter=d]").click()
        page.locator("[data-index='0']").click()
        page.locator("#run").click()
        page.locator(".answer").wait_for()
        page.locator("h1").click()
        save(page, "web-lab-light", ".run:not(.safe) .picture:nth-of-type(2)")


def main() -> None:
    """Draw all."""
    os.chdir(ROOT)  # the view shows the command line
    with browser() as chromium:
        draw_watch(chromium)
        draw_lab(chromium)


if __name__ == "__main__":
    main()
