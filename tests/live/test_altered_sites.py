"""A site that another tool has patched: it is shown with its bytes, and hides no other marker."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import markerjit
from tests.support.commands import cli, facts, one_line
from tests.support.markers import altered
from tests.support.processes import text_of


def address_of(pid: int, marker: str) -> int:
    with markerjit.View(pid) as view:
        return view.sites(marker)[0].address


@pytest.mark.parametrize("index", [0, 1, 3])
def test_an_altered_site_is_shown_and_hides_no_other_marker(target: Callable, index: int) -> None:
    program = target("kvserver")
    address = address_of(program.pid, "kv_hit")
    with markerjit.attach(program.pid) as session:
        session.enable("kv_miss")

        with altered(program.pid, address, index) as head:
            outputs = {name: cli(name, program.pid) for name in ("list", "status")}
            known = {name: facts(name, program.pid)["markers"] for name in outputs}
            session.disable("kv_miss")

    for name, done in outputs.items():
        assert (done.returncode, done.stderr) == (0, ""), name
        assert f"altered: {address:#x} (kv_hit in " in done.stdout, name
        assert f"holds {head.hex(' ')}" in done.stdout, name
    for markers in known.values():
        by_name = {marker["name"]: marker for marker in markers}
        assert len(by_name) == 7
        assert by_name["kv_miss"]["on"] is True
        assert by_name["kv_hit"]["on"] is False
        (site,) = by_name["kv_hit"]["sites"]
        assert site["altered"]["found"].startswith(head.hex())
        assert site["altered"]["found"] != site["altered"]["expected"]
        assert f"{address:#x}" in site["altered"]["problem"]
        others = [site for name in by_name.keys() - {"kv_hit"} for site in by_name[name]["sites"]]
        assert {site["altered"] for site in others} == {None}


def test_a_marker_with_one_altered_site_says_how_many(target: Callable) -> None:
    name = "truth_inline"
    program = target(name)
    with markerjit.attach(program.pid) as session:
        sites = session.sites(name)
        assert len(sites) > 1
        session.enable(name)

        with altered(program.pid, sites[0].address):
            shown = cli("status", program.pid, name).stdout
            (marker,) = session.statistics(name)
            states = session.states(sites)

        session.disable(name)
    assert f"1 of {len(sites)} sites altered" in shown
    assert (marker.mode, marker.partly) == (states[1].mode, False)
    assert [problem.address for problem in marker.altered] == [sites[0].address]
    assert [bool(state.problem) for state in states] == [True] + [False] * (len(sites) - 1)


def test_switching_on_all_is_refused_for_an_altered_site(target: Callable) -> None:
    program = target("kvserver")
    address = address_of(program.pid, "kv_hit")

    with altered(program.pid, address):
        text = text_of(program.pid)
        one_line(cli("on", program.pid, "*"), f"{address:#x} .*kv_hit")
        assert text_of(program.pid) == text

    assert cli("on", program.pid, "*").returncode == 0


def test_doctor_names_an_altered_site(target: Callable) -> None:
    program = target("kvserver")

    with altered(program.pid, address := address_of(program.pid, "kv_hit")):
        findings = facts("doctor", program.pid)["findings"]

    (finding,) = (finding for finding in findings if "of kv_hit" in finding["found"])
    assert f"{address:#x}" in finding["found"]
