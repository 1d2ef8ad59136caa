"""The language in which every JSON file of fishermix is described: bounded types.

Each kind of file has one schema, a `msgspec.Struct` or a dataclass next to the code that saves and loads it.
The schema checks what is read and what is written. Unknown fields are ignored, so that an older fishermix
reads the files of a newer one. Numbers are finite, names and texts have a longest length, and nothing is
nested deeper than its schema.
"""

from __future__ import annotations

import re
from os import PathLike
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta
from msgspec import Struct as Struct
from msgspec import field as field

from fishermix.errors import FishermixError

T = TypeVar("T")

Number = Annotated[float, Meta(ge=-1e300, le=1e300)]
Positive = Annotated[float, Meta(ge=0, le=1e300)]
Count = Annotated[int, Meta(ge=0, le=2**53)]
Size = Annotated[int, Meta(ge=1, le=10**9)]
Seed = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
Name = Annotated[str, Meta(min_length=1, max_length=255)]
Text = Annotated[str, Meta(max_length=4096)]
# A file or folder next to the file that names it.
PlainName = Annotated[str, Meta(pattern=r"\A(?!\.{1,2}\Z)[A-Za-z0-9._ -]{1,120}\Z")]
Digest = Annotated[str, Meta(pattern=r"\A[0-9a-f]{64}\Z")]
_Scalar = bool | Seed | Number | Text | None
_Flat = _Scalar | list[_Scalar] | dict[Name, _Scalar]
# What users add themselves: plain values, nested at most three deep.
Json = _Scalar | list[_Flat] | dict[Name, _Flat]

DAMAGED = "The file is damaged."
LARGEST_JSON = 64 * 2**20  # bytes; the vocabulary of a captioner takes 1 MB


def parse_json(data: bytes, schema: type[T], where: str | PathLike, advice: str = DAMAGED) -> T:
    """The value of this schema that a file's bytes contain; an error names the file and the field."""
    if len(data) > LARGEST_JSON:
        raise FishermixError(f"{where} has {len(data):,} bytes, more than any such file. {advice}")
    try:
        return msgspec.json.decode(data, type=schema)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise _explain(error, where, advice) from error


def parse(value: Any, schema: type[T], where: str | PathLike) -> T:
    """The same for a value of plain JSON types that was read before."""
    try:
        return msgspec.convert(value, schema)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise _explain(error, where, DAMAGED) from error


def dump(value: Any) -> Any:
    """A value of a schema as plain JSON types, checked as if it were read."""
    plain = msgspec.to_builtins(value, enc_hook=lambda number: number.item())  # NumPy's numbers
    try:
        msgspec.convert(plain, type(value))
    except msgspec.ValidationError as error:
        raise FishermixError(f"A {type(value).__name__} cannot be saved: {error}.") from error
    return plain


def _explain(error: Exception, where: str | PathLike, advice: str) -> FishermixError:
    if isinstance(error, RecursionError):
        return FishermixError(f"{where} is nested too deeply. {advice}")
    reason, _, place = str(error).partition(" - at `")
    reason = reason[:200]
    if not isinstance(error, msgspec.ValidationError):
        return FishermixError(f"{where} is not valid JSON ({reason}). {advice}")
    path = place.rstrip("`").removeprefix("key in `").removeprefix("$").removeprefix(".")
    if missing := re.search(r"required field `([^`]*)`", reason):
        path = f"{path}.{missing[1]}".removeprefix(".")
    if not path:
        return FishermixError(f"{where} is invalid ({reason}). {advice}")
    return FishermixError(f"'{path}' is missing or invalid in {where} ({reason}). {advice}")
