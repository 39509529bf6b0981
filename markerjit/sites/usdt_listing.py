"""The USDT probes in the notes of a file, and the sites of a process that follow from them.

A listing is columns, and what many sites share is there once. PostgreSQL has 71 sites of 59 probes
with 30 different operands. So a site of a process is made in one step, when it is known where the
file is mapped.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from operator import attrgetter

from markerjit.errors import BadFile, BadNote
from markerjit.model import (
    Constant,
    Form,
    MappedObject,
    Operand,
    Place,
    Recipe,
    RemoteAddress,
    Signature,
    Static,
    UsdtSite,
    new,
)
from markerjit.tuples import NamedTuple


class UsdtNote(NamedTuple):
    """A probe's site in a file. `offset` and all addresses in the recipe are those of the file."""

    signature: Signature
    offset: int
    form: Form
    recipe: Recipe


class Columns(NamedTuple):
    """The sites of a file by their addresses. The columns are equally long.

    signature  the index of each site's signature
    offset     the address of each in the file
    form       how each looks
    places     for each the indices of its operands, in the order of the signature
    text       the operands of each as the compiler wrote them
    semaphore  the address of each one's semaphore in the file, 0 without one
    """

    signature: Sequence[int]
    offset: Sequence[int]
    form: Sequence[Form]
    places: Sequence[Sequence[int]]
    text: Sequence[str]
    semaphore: Sequence[int]


class Listing(NamedTuple):
    """The sites of a file, and what is wrong with those left out.

    signatures  those that the columns name, each once
    operands    the same; addresses are those of the file
    """

    signatures: Sequence[Signature]
    operands: Sequence[Operand]
    columns: Columns
    problems: tuple[BadNote | BadFile, ...]


def listing_of(notes: Iterable[UsdtNote], problems: Iterable[BadNote | BadFile]) -> Listing:
    """The listing of these notes, in any order."""
    signatures: dict[Signature, int] = {}
    operands: dict[tuple[type[Operand], Operand], int] = {}  # values of two types may be equal
    rows = []
    for signature, offset, form, recipe in sorted(notes, key=attrgetter("offset")):
        index = signatures.setdefault(signature, len(signatures))
        keys = ((type(operand), operand) for operand in recipe.operands)
        places = [operands.setdefault(key, len(operands)) for key in keys]
        rows.append((index, offset, form, places, recipe.text, recipe.semaphore))
    columns = Columns(*zip(*rows, strict=True)) if rows else _NO_COLUMNS
    return Listing([*signatures], [operand for _, operand in operands], columns, tuple(problems))


def placed(listing: Listing, mapped: MappedObject) -> list[UsdtSite]:
    """The sites of a file where it is mapped."""
    bias, name = mapped.bias, os.path.basename(mapped.path)
    signatures = listing.signatures
    operands = [_moved(operand, bias) for operand in listing.operands]
    sites = []
    for signature, offset, form, places, text, semaphore in zip(*listing.columns, strict=True):
        recipe = tuple([operands[place] for place in places]), text, semaphore and semaphore + bias
        place = new(Place, (mapped, offset, f"{name}+{offset:#x}"))
        fields = signatures[signature], place, offset + bias, form, new(Recipe, recipe), *_PLAIN
        sites.append(new(UsdtSite, fields))
    return sites


_NO_COLUMNS = Columns((), (), (), (), (), ())
_PLAIN = tuple(UsdtSite._field_defaults.values())
"""What a site of a USDT probe has behind its recipe: it neither enters nor leaves anything."""


def _moved(operand: Operand, bias: int) -> Operand:
    if isinstance(operand, Static):
        return Static(RemoteAddress(operand.address + bias), operand.symbol)
    if isinstance(operand, Constant) and operand.symbol:
        return Constant(operand.value + bias, operand.symbol)
    return operand
