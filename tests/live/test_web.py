"""`markerjit watch --web` over HTTP: who is answered, what browsers share, and how it ends."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import markerjit
from tests.support.commands import ENVIRONMENT, cli, one_line, running
from tests.support.markers import altered
from tests.support.pages import Served, States, served
from tests.support.programs import Target

pytest.importorskip("starlette", reason="the extra web is not installed")
pytest.importorskip("uvicorn", reason="the extra web is not installed")

LOOP = "truth_loop"
JSON = {"Content_Type": "application/json"}


def mode_of(pid: int, name: str = LOOP) -> str | None:
    with markerjit.View(pid) as view:
        (marker,) = view.statistics(name)
    return str(marker.mode) if marker.mode else None


def row(state: dict, name: str = LOOP) -> dict:
    return next(row for row in state["rows"] if row["name"] == name)


def do(page: Served, action: str, **more: object) -> str:
    """The sentence of a command about the marker."""
    answer = page.act({"do": action, "name": LOOP, **more})
    assert answer.status == 200, answer
    return json.loads(answer.text)["sentence"]


def made(state: dict) -> int:
    """How many stages of a switch are made; -1 without one."""
    return sum(stage["is_made"] for stage in state["detail"]["stages"]) - 1


def chosen(states: States) -> dict:
    return states.until(lambda state: state["detail"] and state["detail"]["row"]["name"] == LOOP)


# ---- who is answered -----------------------------------------------------------------------------


def test_only_the_page_at_its_address_is_answered(target: Callable) -> None:
    program = target("truth_threads", "1", "--rate", "500")

    with served("watch", program.pid) as page:
        root = f"/{page.token}/"
        own = f"http://127.0.0.1:{page.port}"
        command = json.dumps({"do": "on", "name": LOOP})
        act = (f"{root}act", command)

        assert page.ask("GET", root).status == 200
        assert page.ask("HEAD", f"{root}state").status == 200
        denied = {
            "no token": page.ask("GET", "/"),
            "another token": page.ask("GET", "/" + "x" * len(page.token) + "/"),
            "the token as a question": page.ask("GET", f"/?token={page.token}"),
            "another host": page.ask("GET", root, Host="evil.example"),
            "another port": page.ask("GET", root, Host=f"127.0.0.1:{page.port + 1}"),
            "another origin": page.ask("GET", f"{root}state", Origin="http://evil.example"),
            "a frame's origin": page.ask("POST", *act, Origin="null", **JSON),
            "another site": page.ask("GET", f"{root}state", Sec_Fetch_Site="cross-site"),
            "no origin": page.ask("POST", *act, **JSON),
            "a command of another token": page.ask("POST", "/x/act", command, Origin=own, **JSON),
            "a command of another host": page.ask(
                "POST", *act, Origin=own, Host="evil.example", **JSON
            ),
            "a form": page.ask("POST", *act, Origin=own, Content_Type="text/plain"),
            "a command by GET": page.ask("GET", f"{root}act"),
            "another method": page.ask("PUT", root, Origin=own),
            "another page": page.ask("GET", f"{root}etc/passwd"),
        }

        assert {why: answer.status for why, answer in denied.items()} == {
            "no token": 403,
            "another token": 403,
            "the token as a question": 403,
            "another host": 421,
            "another port": 421,
            "another origin": 403,
            "a frame's origin": 403,
            "another site": 403,
            "no origin": 403,
            "a command of another token": 403,
            "a command of another host": 421,
            "a form": 415,
            "a command by GET": 405,
            "another method": 405,
            "another page": 404,
        }
        for why, answer in denied.items():
            assert page.token not in answer.text, why
            assert "default-src 'none'" in answer.headers["content-security-policy"], why
        assert page.end(signal.SIGTERM) == (143, "")
    assert mode_of(program.pid) is None


def test_every_answer_has_the_headers_that_keep_it_to_itself(target: Callable) -> None:
    program = target("truth_threads", "1", "--rate", "500")

    with served("watch", program.pid) as page:
        for answer in (page.ask("GET", f"/{page.token}/"), page.ask("GET", "/")):
            headers = answer.headers
            assert headers["cache-control"] == "no-store"
            assert headers["referrer-policy"] == "no-referrer"
            assert headers["x-frame-options"] == "DENY"
            assert headers["x-content-type-options"] == "nosniff"
            assert headers["cross-origin-resource-policy"] == "same-origin"
            assert "frame-ancestors 'none'" in headers["content-security-policy"]
            assert "access-control-allow-origin" not in headers
            assert "server" not in headers


@pytest.mark.parametrize(
    "body",
    [
        "", "{", "[]", "null", "1", '"on"', "{}", '{"do": 1}', '{"do": "rm"}', '{"do": "on"}',
        '{"do": "on", "name": "no_such"}', '{"do": "choose", "name": ["truth_loop"]}',
        '{"do": "mode", "value": "no mode"}', '{"do": "strategy", "value": "signals"}',
        '{"do": "stage", "number": true}', '{"do": "stage", "number": 1}',
        '{"do": "stage", "number": 1e400}', '{"do": "end"}', '{"do": "__init__"}', "[" * 4000,
    ],
)  # fmt: skip
def test_what_is_no_command_is_not_obeyed(watched: Served, body: str) -> None:
    own = f"http://127.0.0.1:{watched.port}"

    answer = watched.ask("POST", f"/{watched.token}/act", body, Origin=own, **JSON)

    assert (answer.status, answer.text) == (
        400, '{"sentence":"that is not a command of this page"}',
    )  # fmt: skip
    assert watched.process.poll() is None


def test_a_long_command_is_not_read(watched: Served) -> None:
    answer = watched.act({"do": "on" * 3000})

    assert answer.status == 413


@pytest.fixture(scope="module")
def watched(build: Path) -> Iterator[Served]:
    program = Target(build / "truth_threads", "1", "--rate", "500")
    program.wait_ready()
    try:
        with served("watch", program.pid) as page:
            with page.states() as states:
                states.until(lambda state: state["detail"])
            yield page
    finally:
        program.end()


# ---- ports ---------------------------------------------------------------------------------------


def test_a_port_that_is_taken_is_left_alone_and_a_later_one_is_used(target: Callable) -> None:
    program = target("truth_threads", "1", "--rate", "500")

    with served("watch", program.pid) as page:
        with served("watch", program.pid, "--port", page.port) as other:
            assert page.port < other.port < page.port + 50
            assert other.token != page.token
            assert page.ask("GET", f"/{other.token}/").status == 403
            assert other.ask("GET", f"/{page.token}/").status == 403
            assert other.ask("GET", f"/{other.token}/").status == 200
        assert page.ask("GET", f"/{page.token}/").status == 200


def test_no_other_address_of_this_machine_is_served(target: Callable) -> None:
    program = target("truth_threads", "1", "--rate", "500")

    with served("watch", program.pid) as page, pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.2", page.port))


@pytest.mark.parametrize("port", ["0", "65536", "-1", "http"])
def test_what_is_no_port_is_wrong_usage(port: str) -> None:
    done = cli("watch", "1", "--web", "--port", port)

    assert done.returncode == 2


# ---- what browsers share -------------------------------------------------------------------------


def test_a_marker_is_switched_counted_and_off_with_the_view(target: Callable) -> None:
    program = target("truth_threads", "2", "--rate", "500")

    with served("watch", program.pid) as page:
        with page.states() as states:
            states.until(lambda state: state["detail"])
            do(page, "choose")
            chosen(states)
            assert do(page, "on").startswith(f"{LOOP} is on")
            state = states.until(lambda state: (row(state)["rate"] or 0) > 100)
        assert row(state)["shown"] == {"text": "● jump, count*", "role": "on"}
        assert "by this view" in state["detail"]["who"]
        assert "off when it ends" in state["detail"]["who"]
        assert mode_of(program.pid) == "jump"
        assert page.end(signal.SIGINT) == (130, "")

    assert mode_of(program.pid) is None


def test_two_browsers_see_one_view_and_a_new_one_begins_with_all_of_it(target: Callable) -> None:
    program = target("truth_threads", "1", "--rate", "500")

    with served("watch", program.pid) as page:
        with page.states() as first, page.states() as other:
            for states in (first, other):
                states.until(lambda state: state["detail"])
            do(page, "choose")
            do(page, "mode", value="int3")
            sentence = do(page, "on")
            for states in (first, other):
                state = states.until(lambda state: row(state)["state"] == "int3, count")
                assert state["message"]["sentence"] == sentence
                assert not state["message"]["refused"]
        with page.states() as again:
            state = again.next()
        assert state["mode"] == "int3"
        assert state["detail"]["row"]["name"] == LOOP
        assert row(state)["state"] == "int3, count"


def test_stages_are_made_and_taken_back_by_their_number(target: Callable) -> None:
    program = target("truth_threads", "2", "--rate", "500")

    with served("watch", program.pid) as page, page.states() as states:
        states.until(lambda state: state["detail"])
        do(page, "choose")
        do(page, "mode", value="int3")
        do(page, "on")
        do(page, "mode", value="jump")
        assert "n makes the next" in do(page, "step")
        state = states.until(lambda state: state["detail"]["stages"])
        assert (made(state), len(state["detail"]["stages"])) == (0, 3)

        def stage(number: int) -> str:
            return do(page, "stage", number=number)

        assert stage(1).startswith("stage 1 is made")
        state = states.until(lambda state: made(state) == 1)
        lit = [
            byte["value"]
            for piece in state["detail"]["places"][0]["code"]
            for byte in piece["data"]
            if byte["lit"]
        ]
        assert 0x00 in lit
        assert stage(0) == "the change is taken back; all bytes are as they were"
        state = states.until(lambda state: made(state) == 0)
        assert row(state)["state"] == "int3, count"
        assert stage(0) == "stage 0 is where the change stands"
        assert stage(2).startswith("all stages are made")
        states.until(lambda state: row(state)["state"] == "jump, count")
        assert "the change is whole" in stage(1)
        state = states.until(lambda state: state["message"]["refused"])
        assert "the change is whole" in state["message"]["sentence"]
        assert page.end(signal.SIGTERM) == (143, "")

    assert mode_of(program.pid) is None


def test_half_a_change_is_taken_back_at_the_end(target: Callable) -> None:
    program = target("truth_threads", "1", "--rate", "500")

    with served("watch", program.pid) as page:
        with page.states() as states:
            states.until(lambda state: state["detail"])
        do(page, "choose")
        do(page, "step")
        assert do(page, "step").startswith("stage 1 is made")
        assert page.end(signal.SIGHUP) == (129, "")

    with markerjit.View(program.pid) as view:
        arena = view.arena()
        assert arena
        assert arena.writer is None
    assert mode_of(program.pid) is None


def test_a_refusal_is_a_sentence_for_all(target: Callable) -> None:
    program = target("truth_threads", "1", "--rate", "500")

    with served("watch", program.pid) as page, page.states() as states:
        states.until(lambda state: state["detail"])
        with markerjit.attach(program.pid) as session, session.trace(LOOP):
            assert "is recorded by process" in do(page, "on")
            state = states.until(lambda state: state["message"]["refused"])
            assert "is recorded by process" in state["message"]["sentence"]
            assert page.process.poll() is None


def test_a_stage_is_refused_where_the_bytes_are_not_what_they_were(target: Callable) -> None:
    program = target("truth_threads", "1", "--rate", "500")

    with served("watch", program.pid) as page, page.states() as states:
        states.until(lambda state: state["detail"])
        do(page, "choose")
        do(page, "mode", value="int3")
        do(page, "on")
        do(page, "mode", value="jump")
        do(page, "step")
        assert do(page, "step").startswith("stage 1 is made")
        with markerjit.View(program.pid) as view:
            (site,) = view.sites(LOOP)
            # Behind the breakpoint, where nothing is executed.
            with altered(program.pid, site.address, 1) as head:
                assert head == b"\xcc\x10"
                assert "holds 10, expected 00" in do(page, "step")
                state = states.until(lambda state: state["message"]["refused"])
                assert "holds 10, expected 00" in state["message"]["sentence"]
                assert made(state) == 1
                assert view.read(site.address, 2) == head
        assert do(page, "undo").startswith("the change is taken back")
        assert page.end(signal.SIGTERM) == (143, "")

    assert mode_of(program.pid) is None


def test_a_kept_marker_stays_on_and_is_named_at_the_end(target: Callable) -> None:
    program = target("truth_threads", "1", "--rate", "500")

    with served("watch", program.pid) as page:
        with page.states() as states:
            states.until(lambda state: state["detail"])
        do(page, "on")
        assert "stays on when this view ends" in do(page, "keep")
        assert page.end(signal.SIGINT) == (130, f"markerjit: {LOOP} stays on, as you asked\n")

    assert mode_of(program.pid) == "jump"


def test_events_are_recorded_and_shown(target: Callable) -> None:
    program = target("truth_threads", "1", "--rate", "200")

    with served("watch", program.pid) as page, page.states() as states:
        states.until(lambda state: state["detail"])
        do(page, "choose")
        do(page, "events")
        state = states.until(lambda state: state["detail"]["events"])
        assert f"{LOOP} i=0 n=" in state["detail"]["events"][-1]
        assert "recorded no more" in do(page, "events")


def test_threads_have_the_place_that_is_known(target: Callable) -> None:
    program = target("truth_threads", "2", "--rate", "500")

    with served("watch", program.pid) as page, page.states() as states:
        states.until(lambda state: len(state["threads"]) >= 3)

        def main(state: dict) -> dict:
            return next(each for each in state["threads"] if each["tid"] == program.pid)

        # It waits for a command.
        thread = main(states.until(lambda state: main(state)["call"] is not None))

    assert thread["where"].startswith(f"in system call {thread['call']}, at libc")


# ---- the end -------------------------------------------------------------------------------------


def test_a_process_that_goes_away_ends_the_view_with_a_sentence(target: Callable) -> None:
    program = target("truth_threads", "1", "--rate", "500", may_die=True)
    ended = f"process {program.pid} has ended"

    with served("watch", program.pid) as page, page.states() as states:
        states.until(lambda state: state["detail"])
        do(page, "on")
        program.process.kill()
        program.process.wait()
        assert states.until(lambda state: state["ended"])["ended"] == ended
        with pytest.raises(EOFError):
            states.next()
        assert page.outcome() == (0, f"markerjit: {ended}\n")


def test_the_end_is_told_to_every_browser(target: Callable) -> None:
    program = target("truth_threads", "1", "--rate", "500")

    with served("watch", program.pid) as page, page.states() as first, page.states() as other:
        for states in (first, other):
            states.until(lambda state: state["detail"])
        assert page.end(signal.SIGINT) == (130, "")
        for states in (first, other):
            state = states.until(lambda state: state["ended"])
            assert state["ended"] == "markerjit watch has ended"


def test_what_cannot_be_watched_is_refused_before_a_port_is_taken(target: Callable) -> None:
    program = target("truth_threads", "1", "--rate", "500")

    one_line(cli("watch", 1 << 22, "--web"), "no process 4194304")
    one_line(cli("watch", program.pid, "no_such", "--web"), "no marker")


@pytest.mark.parametrize("package", ["starlette", "uvicorn"])
def test_without_its_packages_a_sentence_says_how_to_get_them(
    target: Callable, package: str
) -> None:
    program = target("truth_threads", "1", "--rate", "500")
    script = (
        f"import sys; sys.modules['{package}'] = None\nfrom markerjit.cli.main import main; main()"
    )

    done = subprocess.run(
        [sys.executable, "-c", script, "watch", str(program.pid), "--web"],
        env=ENVIRONMENT, capture_output=True, text=True, check=False,
    )  # fmt: skip

    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(f"markerjit: --web needs the package {package}: ")
    assert done.stderr.endswith("pip install 'markerjit[web]'\n") and done.stderr.count("\n") == 1


@pytest.mark.parametrize("command", ["status", "list"])
def test_no_other_command_loads_the_server(target: Callable, command: str) -> None:
    program = target("truth_threads", "1", "--rate", "500")
    script = (
        "import sys\nfrom markerjit.cli.main import run\nrun(sys.argv[1:])\n"
        "sys.exit(bool({'starlette', 'uvicorn', 'asyncio'} & set(sys.modules)))"
    )

    done = subprocess.run(
        [sys.executable, "-c", script, command, str(program.pid)],
        env=ENVIRONMENT, stdout=subprocess.DEVNULL, check=False,
    )  # fmt: skip

    assert done.returncode == 0


def test_a_closed_output_ends_the_view(target: Callable) -> None:
    program = target("truth_threads", "1", "--rate", "500")

    with running("watch", program.pid, "--web", stdout=subprocess.PIPE) as process:
        assert process.stdout
        process.stdout.close()
        _, errors = process.communicate()

    assert (process.returncode, errors) == (0, "")
