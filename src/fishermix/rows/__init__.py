"""Rows of numbers in memory, in files and in streams, read block by block."""

from typing import TYPE_CHECKING

from fishermix import lazy

if TYPE_CHECKING:
    from fishermix.rows.blocks import ArraySource as ArraySource
    from fishermix.rows.blocks import block_rows as block_rows
    from fishermix.rows.files import open_table as open_table
    from fishermix.rows.open import open_rows as open_rows
    from fishermix.rows.stream import StreamSource as StreamSource

_MODULE_OF = {
    "ArraySource": "blocks",
    "StreamSource": "stream",
    "block_rows": "blocks",
    "open_rows": "open",
    "open_table": "files",
}
__all__ = [
    "ArraySource",
    "StreamSource",
    "block_rows",
    "open_rows",
    "open_table",
]
__getattr__ = lazy.export(__name__, _MODULE_OF)
