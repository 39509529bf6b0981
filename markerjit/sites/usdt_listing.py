"""The USDT probes in the notes of a file, and the sites of a process that follow from them."""

from __future__ import annotations

import os

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
)
from markerjit.tuples import NamedTuple


class UsdtNote(NamedTuple):
    """A probe's site in a file. `offset` and all addresses in the recipe are those of the file."""

    signature: Signature
    offset: int
    form: Form
    recipe: Recipe


class Listing(NamedTuple):
    """The sites of a file by their addresses, and what is wrong with those left out."""

    notes: tuple[UsdtNote, ...]
    problems: tuple[BadNote | BadFile, ...]


def placed(listing: Listing, mapped: MappedObject) -> list[UsdtSite]:
    """The sites of a file where it is mapped."""
    bias, name = mapped.bias, os.path.basename(mapped.path)
    return [
        UsdtSite(
            signature,
            Place(mapped, offset, f"{name}+{offset:#x}"),
            RemoteAddress(offset + bias),
            form,
            _moved(recipe, bias),
        )
        for signature, offset, form, recipe in listing.notes
    ]


def _moved(recipe: Recipe, bias: int) -> Recipe:
    operands, text, semaphore = recipe
    return Recipe(
        tuple(_moved_operand(operand, bias) for operand in operands),
        text,
        RemoteAddress(semaphore and semaphore + bias),
    )


def _moved_operand(operand: Operand, bias: int) -> Operand:
    if isinstance(operand, Static):
        return Static(RemoteAddress(operand.address + bias), operand.symbol)
    if isinstance(operand, Constant) and operand.symbol:
        return Constant(operand.value + bias, operand.symbol)
    return operand
