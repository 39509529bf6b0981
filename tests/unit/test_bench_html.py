"""The bench's report: a page from a small run that is made up here; runs that are wrong."""

from __future__ import annotations

import copy
import re
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from markerjit.apps.bench import html
from markerjit.apps.bench.report import svg
from markerjit.apps.bench.sampling.shapes import VERSION
from markerjit.errors import Refused

BASE, CLANG = "no marker", "no marker, clang"
VOID = {"meta", "br", "!doctype"}


class Page(HTMLParser):
    """Reads a page: that every element is closed, and what words there are."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.words: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open[-1:] != ["style"]:
            self.words.append(data)

    @property
    def text(self) -> str:
        """All words."""
        return " ".join(" ".join(self.words).split())


def form(name: str, cost: float, baseline: str = BASE, **more: Any) -> dict[str, Any]:
    """A form whose interval is 0.1 ns wide."""
    low, high = (cost - 0.05, cost + 0.05) if name != baseline else (cost, cost)
    verdict = "not distinguishable" if low <= 0 <= high else f"{cost:.2f} ns more"
    return {
        "name": name,
        "what": f"what {name} is",
        "baseline": baseline,
        "level": {"value": 1 + cost, "low": 1 + low, "high": 1 + high},
        "cost": {"value": cost, "low": low, "high": high},
        "verdict": f"{verdict} than {baseline}",
        "samples": [[1 + cost, 1.1 + cost, 0.9 + cost], [1 + cost, 1 + cost, 1 + cost]],
        **more,
    }


def code(instructions: float) -> dict[str, Any]:
    """What a form is in machine code."""
    return {
        "instructions": instructions,
        "hot_bytes": 3 * instructions,
        "bytes": 5000 + instructions,
        "data_bytes": None,
        "assembly": [
            {"address": 0x3010, "code": "4885ff", "text": "test rdi, rdi", "hot": False},
            {"address": 0x3013, "code": "eb05", "text": "jmp 0x301a", "hot": True},
        ],
    }


def part(kind: str, title: str, forms: list[dict[str, Any]], **setting: Any) -> dict[str, Any]:
    """A comparison without noise."""
    return {
        "kind": kind, "title": title, "setting": setting, "executions": 1,
        "floor": 0.01, "again": 0.004, "noisy": "", "forms": forms,
    }  # fmt: skip


def hot(args: int = 2, computed: bool = False, more: float = 0.0) -> dict[str, Any]:
    """The small loop: LTTng-UST is more expensive than jump, the 5-byte no-op cheaper than all."""
    return part(
        "hot",
        f"a small loop, {args} arguments, computed: {computed}",
        [
            form(BASE, 0, **code(13)),
            form("no marker, again", 0.0, **code(13)),
            form("jump", 0.5 + more, **code(15)),
            form("symbol", 0.3 + more, **code(15)),
            form("5-byte no-op", 0.1 + more, **code(14)),
            form("LTTng-UST", 0.9 + more, **code(19)),
            form(CLANG, 0.2),
            form("XRay event", 0.35 + more, CLANG),
            form("call", 1.5 + more),
        ],
        args=args,
        computed=computed,
    )


def large(sites: int, more: float = 0.0) -> dict[str, Any]:
    """Many sites."""
    forms = [form(BASE, 0), form("jump", 2 + more), form("symbol", 3), form("LTTng-UST", 4)]
    return part("large", f"{sites} sites, visited in a scattered order", forms, sites=sites)


@pytest.fixture
def run() -> dict[str, Any]:
    return {
        "version": VERSION,
        "machine": {
            "processor": "A processor", "cpus": 2, "load": 0.5,
            "compilers": {"gcc": ["gcc 12.2", "-O2"], "clang": ["clang 14", "-O2"]},
        },
        "missing": [{"form": "USDT", "why": "apt-get install systemtap-sdt-dev"}],
        "parts": [hot(), large(997), large(4985, more=5)],
    }  # fmt: skip


def test_page_is_whole_and_needs_nothing_else(run: dict[str, Any]) -> None:
    text = html.page(run)

    page = Page(text)
    assert page.tags.count("svg") == 2
    assert "script" not in page.tags
    assert not re.search(r"(src|href)=|url\(|@import|https?://", text)


def test_same_run_gives_the_same_bytes(run: dict[str, Any], tmp_path: Path) -> None:
    html.write(run, tmp_path / "page.html")

    assert (tmp_path / "page.html").read_text(encoding="utf-8") == html.page(run)


def test_page_does_not_change_the_run(run: dict[str, Any]) -> None:
    before = copy.deepcopy(run)

    html.page(run)

    assert run == before


def test_answer_says_what_the_default_the_cheapest_and_the_most_expensive_cost(
    run: dict[str, Any],
) -> None:
    text = Page(html.page(run)).text

    assert (
        "jump, the default, costs +0.50 (+0.45 … +0.55) ns; the cheapest form of markerjit" in text
    )
    assert "symbol, costs +0.30 (+0.25 … +0.35) ns" in text
    assert "997 sites, visited in a scattered order: jump, the default, costs +2.00" in text
    assert "the most expensive, symbol, costs +3.00" in text


def test_page_says_where_a_peer_is_cheaper(run: dict[str, Any]) -> None:
    text = Page(html.page(run)).text

    assert "5-byte no-op +0.10 (+0.05 … +0.15) ns: cheaper than every form of markerjit" in text
    assert "XRay event +0.35 (+0.30 … +0.40) ns: cheaper than jump, the default" in text
    assert "4985 sites, visited in a scattered order: LTTng-UST +4.00" in text
    assert "997 sites, visited in a scattered order: LTTng-UST" not in text


def test_page_says_that_no_peer_is_cheaper(run: dict[str, Any]) -> None:
    run["parts"] = [large(997)]

    assert "No peer is cheaper" in Page(html.page(run)).text


def test_page_says_nothing_of_peers_where_the_noise_is_too_great(run: dict[str, Any]) -> None:
    run["parts"] = [large(997) | {"noisy": "no verdict"}]

    text = Page(html.page(run)).text

    assert "The noise is too great to tell whether a peer is cheaper." in text
    assert "No peer is cheaper" not in text


def test_intervals_that_meet_make_no_peer_cheaper(run: dict[str, Any]) -> None:
    run["parts"] = [part("hot", "t", [form(BASE, 0), form("jump", 0.5), form("USDT", 0.42)])]

    assert "No peer is cheaper" in Page(html.page(run)).text


def test_noise_is_said_above_the_plot_and_instead_of_an_answer(run: dict[str, Any]) -> None:
    run["parts"][0]["noisy"] = "no verdict, the machine is too noisy"

    text = Page(html.page(run)).text

    title = "mall loop, 2 arguments, computed: False: no verdict, the machine is too noisy"
    assert f"A s{title}." in text
    assert f"a s{title}" in text
    assert "5-byte no-op +0.10 (+0.05 … +0.15) ns: cheaper" not in text


def test_code_is_shown_as_differences_with_what_is_hot_marked(run: dict[str, Any]) -> None:
    text = html.page(run)

    (jump,) = re.findall(r"<details>(?:(?!</details>).)*<span>jump</span>.*?</details>", text)
    assert "<span>+0.50</span><span>+2</span><span>+6</span><span>+2</span><span>–</span>" in jump
    assert '<li class="hot"><i>3013</i><code>jmp 0x301a</code><small>eb 05</small></li>' in jump
    assert "<li><i>3010</i>" in jump


def test_forms_with_another_baseline_say_so(run: dict[str, Any]) -> None:
    assert "against no marker, clang" in Page(html.page(run)).text


def test_numbers_of_arguments_make_a_plot_for_each_kind(run: dict[str, Any]) -> None:
    run["parts"] = [
        hot(args, computed, args / 10 + computed)
        for args in (1, 2, 4)
        for computed in (False, True)
    ]

    text = html.page(run)

    assert "Cost against arguments, which the loop needs anyway" in text
    assert "Cost against arguments, computed for the site alone" in text
    assert Page(text).tags.count("svg") == 6 + 2


def test_missing_forms_and_what_to_install_are_listed(run: dict[str, Any]) -> None:
    assert "USDT: apt-get install systemtap-sdt-dev" in Page(html.page(run)).text


@pytest.mark.parametrize(
    "parts",
    [
        [],
        [part("hot", "nothing", [])],
        [large(997)],
        [part("own", "work of my.c", [form(BASE, 0), form("jump", 1)], source="my.c")],
        [part("hot", "one", [form(BASE, 0)])],
        [part("large", "none", [], sites=1)],
        [part("large", "gone", [form(BASE, 0), form("jump", 1)], sites=9), large(10)],
        [hot(), hot()],
    ],
)
def test_runs_with_little_in_them_have_a_page(
    run: dict[str, Any], parts: list[dict[str, Any]]
) -> None:
    run["parts"] = parts

    Page(html.page(run))


def test_everything_is_escaped(run: dict[str, Any]) -> None:
    bad = "<b onclick='x'>&\"\ud800"
    evil = form(bad, 1, what=bad, verdict=bad, **code(1))
    evil["assembly"][0] |= {"text": bad, "code": bad}
    run["machine"] = {bad: bad, "compilers": {bad: [bad]}}
    run["missing"] = [{"form": bad, "why": bad}]
    run["parts"] = [
        part("hot", bad, [form(BASE, 0), evil], args=1),
        part("hot", bad, [form(BASE, 0), evil], args=2) | {"noisy": bad},
        part("large", bad, [form(BASE, 0), evil], sites=1),
    ]

    text = html.page(run)

    Page(text)
    assert "<b onclick" not in text
    assert "'x'" not in text
    text.encode("utf-8")


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("machine", None),
        ("machine", []),
        ("missing", [1]),
        ("missing", [{"form": "USDT"}]),
        ("parts", {}),
        ("parts.0", "hot"),
        ("parts.0.title", 1),
        ("parts.0.setting", None),
        ("parts.0.setting.args", "2"),
        ("parts.0.setting.args", -1),
        ("parts.0.floor", float("nan")),
        ("parts.0.noisy", False),
        ("parts.0.forms", 3),
        ("parts.0.forms.1.name", BASE),
        ("parts.0.forms.1.baseline", "gone"),
        ("parts.0.forms.1.cost", [1, 2, 3]),
        ("parts.0.forms.1.cost.low", 10**400),
        ("parts.0.forms.1.cost.low", 5),
        ("parts.0.forms.1.level.high", True),
        ("parts.0.forms.1.samples", []),
        ("parts.0.forms.1.samples", [[]]),
        ("parts.0.forms.1.samples", [[1, 2, 3]]),
        ("parts.0.forms.1.samples", [[1, 2, 3], [1, 2]]),
        ("parts.0.forms.1.samples", [[1, 2, float("inf")], [1, 2, 3]]),
        ("parts.0.forms.1.left_out", [[0, 1, 0]]),
        ("parts.0.forms.1.left_out", [[1, 1, 1], [0, 0, 0]]),
        ("parts.0.forms.1.left_out", "all"),
        ("parts.0.forms.1.shared", 3.0),
        ("parts.0.alone", "half"),
        ("parts.0.forms.1.bytes", "many"),
        ("parts.0.forms.1.assembly", [{"address": 1.5, "code": "", "text": ""}]),
        ("parts.0.forms.1.assembly", [7]),
        ("parts.1.setting.sites", 0),
    ],
)
def test_wrong_shapes_are_refused(run: dict[str, Any], path: str, value: object) -> None:
    place: Any = run
    *before, last = path.split(".")
    for step in before:
        place = place[int(step) if step.isdigit() else step]
    place[int(last) if last.isdigit() else last] = value

    with pytest.raises(Refused, match="not a result of markerjit bench: ") as refused:
        html.page(run)

    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("run_of_nothing", [None, [], "run", {}, {"machine": {}}])
def test_what_is_no_run_is_refused(run_of_nothing: Any) -> None:
    with pytest.raises(Refused):
        html.page(run_of_nothing)


def test_ticks_are_round() -> None:
    assert svg.ticks(-0.3, 1.2, about=4) == [0.0, 0.5, 1.0]


@given(st.lists(st.floats(0, 400), max_size=12))
def test_labels_keep_their_distance_and_their_order(wishes: list[float]) -> None:
    places = svg.spread(wishes, 19, 0, 400)

    order = sorted(range(len(wishes)), key=lambda index: wishes[index])
    sorted_places = [places[index] for index in order]
    assert all(0 <= place <= 400 for place in places)
    assert all(after - before >= 19 - 1e-6 for before, after in pairwise(sorted_places))
