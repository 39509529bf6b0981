"""Which requests the page's server answers, and the page's policy."""

from __future__ import annotations

import base64
import hashlib
import re

import pytest

pytest.importorskip("starlette", reason="the extra web is not installed")

from markerjit.web.guard import Guard
from markerjit.web.histogram import BINS, histogram
from markerjit.web.page import load

TOKEN = "a-token"
HOST = (b"host", b"127.0.0.1:7621")
ORIGIN = (b"origin", b"http://127.0.0.1:7621")


async def nothing(*_: object) -> None:
    raise AssertionError("a denial is no matter of the application")


def status(method: str, *headers: tuple[bytes, bytes], token: str = TOKEN) -> int:
    denial = Guard(nothing, 7621, TOKEN, "").denial(method, token, headers)
    return denial.status if denial else 200


@pytest.mark.parametrize("method", ["GET", "HEAD", "POST"])
@pytest.mark.parametrize("host", [b"127.0.0.1:7621", b"localhost:7621"])
def test_the_page_and_its_requests_are_answered(method: str, host: bytes) -> None:
    origin = (b"origin", b"http://" + host)

    assert status(method, (b"host", host), origin) == 200
    assert status(method, (b"host", host), origin, (b"sec-fetch-site", b"same-origin")) == 200


def test_an_address_that_is_typed_is_answered() -> None:
    assert status("GET", HOST, (b"sec-fetch-site", b"none")) == 200


@pytest.mark.parametrize(
    "hosts",
    [
        [],
        [b""],
        [b"127.0.0.1"],
        [b"127.0.0.1:7622"],
        [b"evil.example:7621"],
        [b"127.0.0.1:7621.evil.example"],
        [b"LOCALHOST:7621"],
        [b"[::1]:7621"],
        [b"127.0.0.1:7621", b"evil.example"],
        [b"127.0.0.1:7621", b"127.0.0.1:7621"],
    ],
)
def test_another_host_is_not_served(hosts: list[bytes]) -> None:
    assert status("GET", *((b"host", host) for host in hosts)) == 421


@pytest.mark.parametrize("token", ["", "a-toke", "a-tokenn", "A-token", "a-tokeñ", "\udcff"])
def test_another_token_is_not_served(token: str) -> None:
    assert status("GET", HOST, token=token) == 403


@pytest.mark.parametrize(
    "origin",
    [b"null", b"", b"http://evil.example", b"https://127.0.0.1:7621", b"http://127.0.0.1:8000"],
)
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_another_origin_is_not_served(method: str, origin: bytes) -> None:
    assert status(method, HOST, (b"origin", origin)) == 403
    assert status(method, HOST, ORIGIN, (b"origin", origin)) == 403


def test_a_command_without_an_origin_is_not_obeyed() -> None:
    assert status("POST", HOST) == 403


@pytest.mark.parametrize("site", [b"cross-site", b"same-site", b""])
def test_a_request_of_another_site_is_not_served(site: bytes) -> None:
    assert status("GET", HOST, (b"sec-fetch-site", site)) == 403
    assert status("POST", HOST, ORIGIN, (b"sec-fetch-site", site)) == 403


@pytest.mark.parametrize("method", ["PUT", "DELETE", "OPTIONS", "TRACE", "CONNECT", "x"])
def test_other_methods_are_not_served(method: str) -> None:
    assert status(method, HOST, ORIGIN) == 405


# ---- the page ------------------------------------------------------------------------------------

PAGES = ("watch", "lab")


@pytest.mark.parametrize("name", PAGES)
def test_the_policy_allows_exactly_what_stands_in_the_page(name: str) -> None:
    page = load(name)

    for tag in ("style", "script"):
        texts = re.findall(rf"<{tag}[^>]*>(.*?)</{tag}>", page.html, re.DOTALL)
        hashes = [base64.b64encode(hashlib.sha256(text.encode()).digest()) for text in texts]
        sources = " ".join(f"'sha256-{digest.decode()}'" for digest in hashes)
        assert texts
        assert f"{tag}-src {sources};" in page.policy
    assert page.policy.startswith("default-src 'none'; ")
    assert "unsafe" not in page.policy


@pytest.mark.parametrize("name", PAGES)
def test_a_page_fetches_nothing_from_elsewhere(name: str) -> None:
    html = load(name).html.replace('"http://www.w3.org/2000/svg"', "")

    assert not re.search(r"https?:|//[a-z]|@import|url\(| src=|data-file", html)
    assert not re.search(r" (on\w+|style)=\"", html)
    assert not re.search(r"innerHTML|outerHTML|insertAdjacent|document\.write|eval\(", html)


# ---- samples -------------------------------------------------------------------------------------


def test_a_histogram_has_every_sample_in_it_or_outside() -> None:
    counted = histogram([float(value) for value in range(1000)])

    assert sum(counted["counts"]) + counted["outside"] == 1000
    assert len(counted["counts"]) == BINS
    assert counted["median"] == 500
    assert counted["low"] == 20


def test_samples_of_one_value_are_one_bin() -> None:
    counted = histogram([3.0, 3.0])

    assert counted["counts"] == [2, *[0] * (BINS - 1)]
    assert counted["low"] == counted["median"] == 3.0
