"""The pages of `watch --web` and `lab --web` in a real browser."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import pytest

import markerjit
from markerjit.lab import cost
from tests.support.browser import browser, missing, violations
from tests.support.c_probes import TURNS
from tests.support.choice import share
from tests.support.pages import Served, served
from tests.support.timing import HANG_S, wait_until

pytestmark = pytest.mark.skipif(bool(missing()), reason=missing() or "nothing is missing")

LOOP = "truth_loop"
REBOUND = "rebound.example"
"""A name that is resolved to this machine."""

FIGURE = r"{0} \[{0}, {0}\]".format(r"[+-]\d+\.\d\d")
"""An estimate and its interval."""
PHONE, LAPTOP, PROJECTOR = (390, 844), (1280, 800), (2560, 1440)


@pytest.fixture(scope="module")
def chromium() -> Iterator:
    from playwright.sync_api import expect

    expect.set_options(timeout=HANG_S * 1000)
    with browser(f"--host-resolver-rules=MAP {REBOUND} 127.0.0.1") as opened:
        yield opened


class Visitor:
    """A page in a browser of its own, with what went wrong in it."""

    def __init__(self, chromium, url: str, scheme: str = "light", size=LAPTOP) -> None:
        width, height = size
        self.context = chromium.new_context(
            color_scheme=scheme, viewport={"width": width, "height": height}
        )
        self.context.set_default_timeout(HANG_S * 1000)
        self.page = self.context.new_page()
        self.errors: list[str] = []
        self.requests: list[str] = []
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("console", lambda message: self.errors.append(message.text))
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.goto(url)

    def __enter__(self) -> Visitor:
        return self

    def __exit__(self, *_: object) -> None:
        self.context.close()

    def shows(self, selector: str, text: str) -> None:
        """Wait until this part has this text, a regular expression."""
        from playwright.sync_api import expect

        expect(self.page.locator(selector)).to_have_text(re.compile(text))

    def press(self, key: str, says: str) -> None:
        self.page.keyboard.press(key)
        self.shows("#message", says)

    def choose(self, name: str = LOOP) -> None:
        self.page.get_by_role("button", name=name, exact=True).click()
        self.shows("#name", f"^{name}$")

    def choose_mode(self, mode: str) -> None:
        self.page.locator("#mode").select_option(mode)
        self.page.get_by_role("button", name=LOOP, exact=True).focus()
        self.row("mode", mode)

    def row(self, control: str, value: str) -> None:
        """Wait until the server has said that this is chosen."""
        from playwright.sync_api import expect

        expect(self.page.locator(f"#{control}")).to_have_attribute("data-seen", value)

    def width(self) -> int:
        return int(self.page.evaluate("document.documentElement.scrollWidth"))


def mode_of(pid: int) -> str | None:
    with markerjit.View(pid) as view:
        (marker,) = view.statistics(LOOP)
    return str(marker.mode) if marker.mode else None


# ---- watch ---------------------------------------------------------------------------------------


def test_a_marker_is_switched_by_button_and_key_and_counts(chromium, target: Callable) -> None:
    program = target("truth_threads", "2", "--rate", "500")

    with served("watch", program.pid) as page, Visitor(chromium, page.url) as seen:
        seen.choose()
        seen.page.get_by_role("button", name="On").click()
        seen.shows("#message", f"^{LOOP} is on")
        assert mode_of(program.pid) == "jump"
        seen.shows("#state", r"^● jump, count\*$")
        seen.shows("#rate", r"now [1-9]\d*, at most")
        seen.press("k", "stays on when this view ends")
        seen.press("f", f"^{LOOP} is off")
        seen.shows("#state", "^○ off$")
        assert mode_of(program.pid) is None
        assert seen.errors == []
        assert all(url.startswith((page.url, "data:")) for url in seen.requests)


def test_histogram_of_a_probe_in_c_is_shown_as_it_grows(
    chromium, target: Callable, probe: Callable
) -> None:
    program = target("truth_threads", "1", "--rate", "500")
    with markerjit.attach(program.pid) as session:
        session.enable(LOOP, probe=probe(TURNS, "count"))

    with served("watch", program.pid) as page, Visitor(chromium, page.url) as seen:
        shown = seen.page.locator("#probes")
        shown.locator("rect").first.wait_for()
        first = shown.locator("rect").count()
        wait_until(lambda: shown.locator("rect").count() > first, "a bucket more")
        seen.shows("#probes", r"probe\.c.*turns: [1-9][\d,]*numbers, by bucket")
        assert shown.get_by_role("img", name="numbers: values from ").count() == 1
        assert violations(seen.page) == []
        assert seen.errors == []


def test_stages_are_made_by_key_and_by_dragging_and_changed_bytes_are_framed(
    chromium, target: Callable
) -> None:
    program = target("truth_threads", "1", "--rate", "500")

    with served("watch", program.pid) as page, Visitor(chromium, page.url) as seen:
        seen.choose()
        seen.choose_mode("int3")
        seen.press("o", "is on")
        seen.choose_mode("jump")
        seen.press("n", "n makes the next")
        seen.shows("#stages-made", "^0 of 2 made$")
        seen.press("n", "^stage 1 is made")
        seen.shows("#stages-made", "^1 of 2 made$")
        seen.shows("#state", "int3, count")
        seen.page.locator("#stage").focus()
        seen.press("ArrowLeft", "is taken back")
        seen.shows("#stages-made", "^0 of 2 made$")
        seen.page.evaluate(NOTE_FRAMED)
        drag(seen, "#stage", 0, 0.5)
        seen.shows("#message", "^stage 1 is made")
        wait_until(lambda: "00" in seen.page.evaluate("framed"), "a frame around the byte")
        drag(seen, "#stage", 0.5, 1)
        seen.shows("#message", "^all stages are made")
        seen.shows("#state", "jump, count")
        drag(seen, "#stage", 1, 0)
        seen.shows("#message", "^Refused: all stages are made, and the change is whole")
        seen.shows("#stages-made", "^2 of 2 made$")
        assert seen.errors == []


def test_a_slider_that_was_dragged_and_put_back_follows_the_stages_again(
    chromium, target: Callable
) -> None:
    """A slider whose value is the same in the end tells its page of no change."""
    from playwright.sync_api import expect

    program = target("truth_threads", "1", "--rate", "500")

    with served("watch", program.pid) as page, Visitor(chromium, page.url) as seen:
        seen.choose()
        seen.choose_mode("int3")
        seen.press("n", "n makes the next")
        seen.shows("#stages-made", "^0 of 3 made$")
        drag(seen, "#stage", 0, 1, 0)
        seen.page.get_by_role("button", name=LOOP, exact=True).focus()
        seen.press("n", "^stage 1 is made")

        expect(seen.page.locator("#stage")).to_have_value("1")
        assert seen.errors == []


NOTE_FRAMED = """() => {
    window.framed = [];
    new MutationObserver(() => {
        for (const mark of document.querySelectorAll("#code mark")) framed.push(mark.textContent);
    }).observe(document.getElementById("code"), {childList: true, subtree: true});
}"""
"""A frame lasts for seconds, and a busy browser may show it for less than a look of ours."""


def drag(seen: Visitor, selector: str, start: float, *ways: float) -> None:
    """Drag the thumb of a slider from one of these parts of its length to the next ones."""
    slider = seen.page.locator(selector)
    slider.scroll_into_view_if_needed()
    box = slider.bounding_box()
    assert box
    thumb = 16.0  # its middle is so far within the ends, half of it

    def x(part: float) -> float:
        return float(box["x"]) + thumb / 2 + part * (float(box["width"]) - thumb)

    y = box["y"] + box["height"] / 2
    seen.page.mouse.move(x(start), y)
    seen.page.mouse.down()
    for end in ways:
        seen.page.mouse.move(x(end), y, steps=5)
    seen.page.mouse.up()


def test_all_is_done_with_the_keyboard(chromium, target: Callable) -> None:
    program = target("truth_threads", "1", "--rate", "500")

    with served("watch", program.pid) as page, Visitor(chromium, page.url) as seen:
        seen.shows("#name", "^truth_birth$")
        focused = "document.activeElement"
        seen.page.keyboard.press("Tab")
        assert seen.page.evaluate(f"{focused}.textContent") == "truth_birth"
        outline = seen.page.evaluate(f"getComputedStyle({focused}).outlineStyle")
        assert outline == "solid"
        seen.page.keyboard.press("ArrowDown")
        seen.shows("#name", f"^{LOOP}$")
        assert seen.page.evaluate(f"{focused}.textContent") == LOOP
        seen.page.keyboard.press("m")
        seen.page.keyboard.press("s")
        seen.row("strategy", "membarrier")
        seen.page.locator("#keys").uncheck()
        seen.page.keyboard.press("o")
        seen.page.locator("#keys").check()
        seen.press("u", "nothing is being made in stages")
        assert mode_of(program.pid) is None, "the key did nothing while the keys were off"


def test_two_browsers_show_one_view(chromium, target: Callable) -> None:
    program = target("truth_threads", "1", "--rate", "500")

    with (
        served("watch", program.pid) as page,
        Visitor(chromium, page.url) as laptop,
        Visitor(chromium, page.url, "dark", PHONE) as phone,
    ):
        phone.choose()
        laptop.shows("#name", f"^{LOOP}$")
        phone.page.get_by_role("button", name="On").click()
        laptop.shows("#message", f"^{LOOP} is on")
        laptop.shows("#state", "jump, count")
        assert laptop.errors == phone.errors == []


def test_a_lost_connection_comes_back_by_itself(chromium, target: Callable) -> None:
    program = target("truth_threads", "1", "--rate", "500")

    with served("watch", program.pid) as page:
        context = chromium.new_context()
        context.route("**/state", lambda route: route.abort("connectionreset"))
        visitor = Visitor.__new__(Visitor)
        visitor.context, visitor.page = context, context.new_page()
        with visitor as seen:
            seen.page.goto(page.url)
            seen.shows("#link", "^connection lost, trying again$")
            context.unroute("**/state")
            seen.shows("#link", "^live$")
            seen.shows("#name", "^truth_birth$")


def test_the_end_of_the_process_is_said_and_nothing_can_be_pressed(
    chromium, target: Callable
) -> None:
    program = target("truth_threads", "1", "--rate", "500", may_die=True)

    with served("watch", program.pid) as page, Visitor(chromium, page.url) as seen:
        seen.choose()
        program.process.kill()
        program.process.wait()
        seen.shows("#message", f"^process {program.pid} has ended$")
        seen.shows("#link", "^ended$")
        assert seen.page.locator("button:enabled, select:enabled, input:enabled").count() == 0
        assert page.outcome() == (0, f"markerjit: process {program.pid} has ended\n")


# ---- other pages ---------------------------------------------------------------------------------

ATTACK = """async (url) => {
    const command = JSON.stringify({do: "on", name: "truth_loop"});
    const attempt = async (path, options) => {
        try { return (await fetch(url + path, options)).status; } catch { return "blocked"; }
    };
    const form = {method: "POST", mode: "no-cors", body: command};
    const json = {method: "POST", body: command, headers: {"Content-Type": "application/json"}};
    return [
        await attempt("", {}),
        await attempt("state", {}),
        await attempt("act", form),
        await attempt("act", json),
    ];
}"""


def test_a_page_of_another_site_gets_nothing_though_it_knows_the_address(
    chromium, target: Callable
) -> None:
    program = target("truth_threads", "1", "--rate", "500")

    with served("watch", program.pid) as page:
        context = chromium.new_context()
        html = f'<iframe src="{page.url}"></iframe>'
        context.route(
            "http://evil.example/", lambda route: route.fulfill(body=html, content_type="text/html")
        )
        try:
            evil = context.new_page()
            evil.goto("http://evil.example/")
            attempts = evil.evaluate(ATTACK, page.url)
        finally:
            context.close()
        assert attempts[:2] == ["blocked", "blocked"]
        assert attempts[2] in ("blocked", 0), "an opaque answer has the status 0"
        assert attempts[3] == "blocked"
        with page.states() as states:
            state = states.until(lambda state: state["detail"])
        assert state["message"]["number"] == 0, "no command was obeyed"
    assert mode_of(program.pid) is None


def test_a_name_that_is_resolved_to_this_machine_gets_nothing(chromium, target: Callable) -> None:
    program = target("truth_threads", "1", "--rate", "500")

    with served("watch", program.pid) as page:
        context = chromium.new_context()
        try:
            answer = context.new_page().goto(f"http://{REBOUND}:{page.port}/{page.token}/")
            assert answer
            assert answer.status == 421
        finally:
            context.close()


# ---- for everybody -------------------------------------------------------------------------------


@pytest.mark.parametrize("scheme", [pytest.param("light", marks=pytest.mark.long), "dark"])
def test_watch_is_accessible_and_fits(chromium, target: Callable, scheme: str) -> None:
    program = target("truth_threads", "1", "--rate", "500")

    with served("watch", program.pid) as page:
        for size in share((PHONE, LAPTOP, PROJECTOR), 2, 0):
            with Visitor(chromium, page.url, scheme, size) as seen:
                seen.choose()
                if size == PHONE:
                    seen.press("n", "n makes the next")
                    seen.press("n", "^stage 1 is made")
                seen.shows("#stages-made", "^1 of 3 made$|^1 of 2 made$|^1 of 1 made$")
                assert violations(seen.page) == []
                assert seen.width() <= size[0]
                assert seen.errors == []


@pytest.mark.parametrize(
    ("scheme", "size"),
    [("light", LAPTOP), pytest.param("dark", PHONE, marks=pytest.mark.long)],
)
def test_lab_is_predicted_run_explained_and_accessible(
    chromium, lab: Served, scheme: str, size: tuple[int, int]
) -> None:
    with Visitor(chromium, lab.url, scheme, size) as seen:
        seen.shows("#title", r"^\(a\) one byte is enough$")
        seen.page.locator("[data-letter=d]").click()
        seen.shows("#title", r"^\(d\)")
        seen.page.keyboard.press("2")
        seen.page.locator("#run").click()
        seen.shows("#message", "^experiment d: what came true: execute the middle of the jump")
        seen.shows(".answer", "You predicted otherwise.$")
        seen.page.keyboard.press("1")
        seen.shows(".answer", "You predicted it.$")
        seen.shows("article:nth-of-type(1) h3", "^dangerous ")
        seen.shows("article:nth-of-type(2) h3", "^safe ")
        seen.page.keyboard.press("s")
        seen.shows("#source", "def runs")
        assert violations(seen.page) == []
        assert seen.width() <= size[0]
        assert seen.errors == []
        seen.page.keyboard.press("ArrowUp")
        seen.shows("#title", r"^\(c\)")


@pytest.mark.parametrize(
    ("scheme", "size"),
    [("light", LAPTOP), pytest.param("dark", PHONE, marks=pytest.mark.long)],
)
def test_measured_costs_are_bars_with_figures(
    chromium, lab: Served, scheme: str, size: tuple[int, int]
) -> None:
    with Visitor(chromium, lab.url, scheme, size) as seen:
        seen.page.locator("[data-letter=i]").click()
        seen.page.locator("#run").click()
        seen.shows("#message", "^experiment i: what came true: ")
        names = seen.page.locator(".chart th").all_inner_texts()
        figures = seen.page.locator(".chart td:last-child").all_inner_texts()
        assert names == list(cost.SHOWN.values())
        assert len(figures) == seen.page.locator(".chart svg .interval").count() == len(names)
        assert all(re.fullmatch(FIGURE, figure) for figure in figures)
        assert violations(seen.page) == []
        assert seen.width() <= size[0]
        assert seen.errors == []


@pytest.fixture(scope="module")
def lab() -> Iterator[Served]:
    with served("lab") as page:
        yield page
