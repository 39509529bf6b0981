"""The source of a Debian package, as upstream made it: fetched with apt-get, and unpacked.

The system's apt is left as it is: lists and downloads are in a directory of ours, and the list of
sources is the system's own, with `deb-src` in it. Nobody has to be root for that.
"""

from __future__ import annotations

import copy
import re
import shutil
import subprocess
import tarfile
from pathlib import Path

from markerjit.errors import Refused

ETC = Path("/etc/apt")
_PATIENCE_S = 300


def archive(package: str, directory: Path, etc: Path = ETC) -> Path:
    """The upstream tarball of a package, fetched where it is not there yet. Raises Refused."""
    directory.mkdir(parents=True, exist_ok=True)
    if archives := _archives(package, directory):
        return archives[-1]
    if shutil.which("apt-get") is None:
        raise _cannot(package, directory, "there is no apt-get here")
    options = _own_apt(directory / "apt", etc)
    reason = ""
    for command in (["update"], ["source", "--download-only", package]):
        try:
            done = subprocess.run(
                ["apt-get", "-qq", *options, *command], cwd=directory, check=False,
                stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_PATIENCE_S,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            why = f"apt-get {command[0]} does not end within {_PATIENCE_S} s"
            raise _cannot(package, directory, why) from None
        reason = reason or next((line for line in done.stderr.splitlines() if line[:2] == "E:"), "")
    if archives := _archives(package, directory):
        return archives[-1]
    raise _cannot(package, directory, reason.removeprefix("E:").strip() or "apt-get finds none")


def unpack(archive: Path, tree: Path) -> None:
    """Its files, without the directory that they are all in."""
    with tarfile.open(archive) as tar:
        tar.extraction_filter = getattr(tarfile, "data_filter", lambda member, path: member)
        for member in tar:
            _, _, name = member.name.removeprefix("./").partition("/")
            if name:
                inner = copy.copy(member)  # TarInfo.replace came with Python 3.11.4
                inner.name = name
                tar.extract(inner, tree)


def with_sources(text: str) -> str:
    """A list of apt's, in either of its formats, of source packages."""
    text = re.sub(r"^Types:.*$", "Types: deb-src", text, flags=re.MULTILINE)
    return re.sub(r"^deb(?=\s)", "deb-src", text, flags=re.MULTILINE)


def _own_apt(directory: Path, etc: Path) -> list[str]:
    """Options that keep apt-get inside a directory."""
    parts, lists, cache = (directory / name for name in ("sources", "lists", "cache"))
    shutil.rmtree(parts, ignore_errors=True)
    for path in (parts, lists / "partial", cache / "archives" / "partial"):
        path.mkdir(parents=True, exist_ok=True)
    own = etc / "sources.list.d"
    for path in [etc / "sources.list", *own.glob("*.list"), *own.glob("*.sources")]:
        if path.is_file():
            (parts / path.name.replace("sources.list", "main.list")).write_text(
                with_sources(path.read_text(errors="replace"))
            )
    options = {
        "Dir::Etc::sourcelist": "/dev/null", "Dir::Etc::sourceparts": parts,
        "Dir::State::Lists": lists, "Dir::Cache": cache, "Acquire::Retries": "1",
    }  # fmt: skip
    return [word for name, value in options.items() for word in ("-o", f"{name}={value}")]


def _archives(package: str, directory: Path) -> list[Path]:
    return sorted(directory.glob(f"{package}_*.orig.tar.[gx]z"))


def _cannot(package: str, directory: Path, why: str) -> Refused:
    return Refused(
        f"the source of Debian's {package} cannot be had: {why}; where there is a network, "
        f"`apt-get source --download-only {package}` fetches it, and {package}_*.orig.tar.* "
        f"belongs into {directory}"
    )
