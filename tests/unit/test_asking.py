"""Sites that a question can be asked of, and the reasons why the others cannot."""

from __future__ import annotations

from markerjit.model import Kind, Site
from markerjit.questions import Lack
from markerjit.session.asking import divide
from tests.support.made_sites import make_site


def site_of(marker: str, *, has_block: bool) -> Site:
    site = make_site(Kind.JUMP, marker=marker)
    return site._replace(body=site.body._replace(preserving=has_block))


def test_a_marker_without_a_block_is_left_out_for_that_whatever_it_lacks() -> None:
    sites = [site_of("plain", has_block=False), site_of("both", has_block=False)]
    sites += [site_of("lacking", has_block=True), site_of("asked", has_block=True)]
    signatures = [site.signature for site in sites]

    divided = divide(sites, signatures, ["plain", Lack("both", "size"), Lack("lacking", "size"), 7])

    reasons = {left.marker: left.sentence for left in divided.left_out.values()}
    assert [signature.name for signature in divided.asked] == ["asked"]
    assert reasons["plain"].startswith("plain calls its probe as a C function")
    assert reasons["both"].startswith("both calls its probe as a C function")
    assert reasons["lacking"] == "lacking has no field size"
