"""Rows of numbers in memory, in files and in streams, read block by block."""

from typing import TYPE_CHECKING

from fishermix.runtime import export_lazily

if TYPE_CHECKING:
    from fishermix.rows.blocks import ArraySource as ArraySource
    from fishermix.rows.blocks import block_rows as block_rows
    from fishermix.rows.sources import StreamSource as StreamSource
    from fishermix.rows.sources import open_rows as open_rows
    from fishermix.rows.sources import open_table as open_table

_MODULE_OF = {
    "ArraySource": "blocks",
    "StreamSource": "sources",
    "block_rows": "blocks",
    "open_rows": "sources",
    "open_table": "sources",
}
__all__ = list(_MODULE_OF)
__getattr__ = export_lazily(__name__, _MODULE_OF)
