"""Tables that name and type the arguments of USDT probes: the package's and the user's."""

from __future__ import annotations

from pathlib import Path

import pytest

from markerjit.sites import providers
from markerjit.sites.providers import Parameter, Providers, parse_parameters, parse_tables

TABLES = sorted(Path(providers.__file__).with_name("providers").glob("*.toml"))


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory of the user's tables."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    folder = tmp_path / "markerjit" / "usdt"
    folder.mkdir(parents=True, mode=0o700)
    folder.parent.chmod(0o700)
    return folder


def write(path: Path, text: str) -> Path:
    path.write_text(text)
    path.chmod(0o600)
    return path


@pytest.mark.parametrize("path", TABLES, ids=[path.stem for path in TABLES])
def test_table_of_the_package_is_of_its_provider_and_names_its_source(path: Path) -> None:
    text = path.read_text()

    assert list(parse_tables(text.encode())) == [path.stem]
    assert text.startswith("# ")
    assert any(word in text.split("[")[0] for word in ("https://", ".txt", ".cc"))


@pytest.mark.parametrize("provider", ["libc", "libpthread"])
def test_the_return_of_pthread_join_has_what_it_returns_and_what_the_thread_did(
    provider: str, own: Path
) -> None:
    """nptl/pthread_join_common.c: LIBC_PROBE (pthread_join_ret, 3, threadid, result, pd_result)."""
    parameters = Providers().parameters(provider, "pthread_join_ret")

    assert parameters == (
        Parameter("thread", "void *"),
        Parameter("result", "int"),
        Parameter("value", "void *"),
    )


@pytest.mark.parametrize(
    ("text", "parameters"),
    [
        ("", ()),
        ("void", ()),
        ("int a", (Parameter("a", "int"),)),
        ("const char *a", (Parameter("a", "char *"),)),
        ("char* a, void **b", (Parameter("a", "char *"), Parameter("b", "void **"))),
        ("unsigned long long a", (Parameter("a", "unsigned long long"),)),
        ("char a[n], int n", (Parameter("a", "char", "n"), Parameter("n", "int"))),
    ],
)
def test_parameters_are_those_of_c(text: str, parameters: tuple[Parameter, ...]) -> None:
    assert parse_parameters(text) == parameters


@pytest.mark.parametrize(
    "text",
    [
        "int",
        "int a,",
        "int a, int a",
        "char a[n]",
        "int (*f)(int)",
        "int a[n], int n",  # the length is of bytes
        "char *a[n], int n",
        "char a[a]",
        "char a[b], char b[n], int n",
    ],
)
def test_text_that_is_no_list_of_parameters_is_refused(text: str) -> None:
    assert parse_parameters(text) is None


def test_table_of_the_user_adds_and_wins(own: Path) -> None:
    write(own / "mine.toml", '[mine]\nget = "char *key"\n')
    write(own / "other.toml", '[postgresql]\nquery__start = "char *sql"\n')
    tables = Providers()

    assert tables.parameters("mine", "get") == (Parameter("key", "char *"),)
    assert tables.parameters("postgresql", "query__start") == (Parameter("sql", "char *"),)
    assert tables.parameters("postgresql", "query__done") == (Parameter("query", "char *"),)
    assert tables.parameters("mine", "put") is None
    assert tables.parameters("../postgresql", "query__start") is None
    assert tables.problems == []


def test_table_says_which_probe_another_one_needs_and_in_which_files(own: Path) -> None:
    needs = 'get = "open"\n"put@libmine*" = "close"'
    write(own / "mine.toml", f'[mine]\nget = "int n"\n[mine.needs]\n{needs}\n')
    tables = Providers()

    assert tables.needed("mine", "get", "/usr/bin/any") == "open"
    assert tables.needed("mine", "put", "/usr/lib/libmine.so.1") == "close"
    assert tables.needed("mine", "put", "/usr/bin/mine") == ""
    assert tables.needed("mine", "other", "/usr/bin/mine") == ""
    assert tables.needed("python", "function__entry", "/usr/bin/python3.11") == "line"
    assert tables.needed("python", "function__entry", "/lib/libpython3.11.so.1.0") == "line"
    assert tables.needed("python", "function__entry", "/usr/bin/python3.10") == ""
    assert tables.parameters("mine", "get") == (Parameter("n", "int"),)
    assert tables.parameters("mine", "needs") is None
    assert tables.problems == []


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("[mine", "Expected"),
        ("[mine.needs]\nget = 1", "mine.needs has something else than names of probes"),
        ("mine = 1", "'mine' is not a table of a provider"),
        ("[mine]\nget = 1", "mine:get has no list of parameters"),
        ('[mine]\nget = "int"', "mine:get has no list of parameters: 'int'"),
        ("a = " + "[" * 100_000, ""),
        ("#" * (1 << 20) + "#", "more than 1 MiB"),
    ],
)
def test_table_that_makes_no_sense_is_a_problem_and_others_are_read(
    own: Path, text: str, reason: str
) -> None:
    bad = write(own / "bad.toml", text)
    write(own / "good.toml", '[good]\nget = "int n"\n')
    tables = Providers()

    assert tables.parameters("good", "get") == (Parameter("n", "int"),)
    assert str(tables.problems[0]).startswith(f"{bad}: ")
    assert reason in str(tables.problems[0])


def test_table_that_another_user_could_have_written_is_not_believed(own: Path) -> None:
    path = write(own / "mine.toml", '[mine]\nget = "char *key"\n')
    path.chmod(0o666)
    tables = Providers()

    assert tables.parameters("mine", "get") is None
    assert [str(problem) for problem in tables.problems] == [f"{path}: another user can write it"]


def test_directory_that_another_user_can_write_is_not_believed(own: Path) -> None:
    write(own / "mine.toml", '[mine]\nget = "char *key"\n')
    own.chmod(0o777)
    tables = Providers()

    assert tables.parameters("mine", "get") is None
    assert [str(problem) for problem in tables.problems] == [f"{own}: another user can write there"]


def test_link_in_the_place_of_a_table_is_not_followed(own: Path, tmp_path: Path) -> None:
    (own / "mine.toml").symlink_to(write(tmp_path / "table", '[mine]\nget = "char *key"\n'))
    tables = Providers()

    assert tables.parameters("mine", "get") is None
    assert len(tables.problems) == 1
