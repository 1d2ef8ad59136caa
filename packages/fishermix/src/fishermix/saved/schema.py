"""The schema of JSON files: plain types with limits, and the checks of values that are read or written."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta
from msgspec import Struct as Struct
from msgspec import field as field

from fishermix.errors import DAMAGED, FishermixError

T = TypeVar("T")

# The types of every JSON file of fishermix: numbers are finite, names and texts have a longest length.
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

LARGEST_JSON = 64 * 2**20  # bytes; the vocabulary of a captioner takes 1 MB


def load_json(path: str | os.PathLike, schema: type[T], advice: str = DAMAGED) -> T:
    """The value of this schema in a JSON file. A file that is too large is refused before it is read."""
    _check_size(os.stat(path).st_size, path, advice)
    return parse_json(Path(path).read_bytes(), schema, path, advice)


def parse_json(data: bytes, schema: type[T], where: str | os.PathLike, advice: str = DAMAGED) -> T:
    """The value of this schema that a file's bytes contain; an error names the file and the field."""
    _check_size(len(data), where, advice)
    try:
        return msgspec.json.decode(data, type=schema)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise _explain(error, where, advice) from error


def parse(value: Any, schema: type[T], where: str | os.PathLike) -> T:
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
        raise FishermixError(
            f"A {type(value).__name__} cannot be saved: {error}.", code="cannot_save"
        ) from error
    return plain


def _check_size(size: int, where: str | os.PathLike, advice: str) -> None:
    if size > LARGEST_JSON:
        raise FishermixError(f"{where} has {size:,} bytes, more than any such file. {advice}", code="damaged")


def _explain(error: Exception, where: str | os.PathLike, advice: str) -> FishermixError:
    if isinstance(error, RecursionError):
        return FishermixError(f"{where} is nested too deeply. {advice}", code="damaged")
    reason, _, place = str(error).partition(" - at `")
    reason = reason[:200]
    if not isinstance(error, msgspec.ValidationError):
        return FishermixError(f"{where} is not valid JSON ({reason}). {advice}", code="damaged")
    path = place.rstrip("`").removeprefix("key in `").removeprefix("$").removeprefix(".")
    if missing := re.search(r"required field `([^`]*)`", reason):
        path = f"{path}.{missing[1]}".removeprefix(".")
    if not path:
        return FishermixError(f"{where} is invalid ({reason}). {advice}", code="damaged")
    return FishermixError(
        f"'{path}' is missing or invalid in {where} ({reason}). {advice}", code="damaged", field=path
    )


def list_feature_names(estimator: Any) -> list[str] | None:
    """The names of the columns that an estimator was fitted to, or None."""
    names = getattr(estimator, "feature_names_in_", None)
    return None if names is None else [str(name) for name in names]


def check_feature_names(
    names: list[str] | None, n_features: int, where: str | os.PathLike
) -> list[str] | None:
    """`feature_names_in` of a saved estimator, if there is one name per column; None if absent."""
    if names is not None and len(names) != n_features:
        raise FishermixError(
            f"'feature_names_in' in {where} must be a list of {n_features} names.", code="damaged"
        )
    return names
