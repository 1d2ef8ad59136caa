"""Rows in memory, in files or in a stream, read in blocks."""

from fishermix.rows.blocks import GROUP, PANEL, Block, BlockStep, block_rows, cut, sum_in_tree
from fishermix.rows.sources import (
    ArraySource,
    RowSource,
    StreamSource,
    check_finite,
    find_not_finite,
    open_rows,
)
from fishermix.rows.tables import BlockTable, FileTable, open_table
from fishermix.rows.threads import available_threads, count_threads, map_in_threads

__all__ = [
    "GROUP",
    "PANEL",
    "ArraySource",
    "Block",
    "BlockStep",
    "BlockTable",
    "FileTable",
    "RowSource",
    "StreamSource",
    "available_threads",
    "block_rows",
    "check_finite",
    "count_threads",
    "cut",
    "find_not_finite",
    "map_in_threads",
    "open_rows",
    "open_table",
    "sum_in_tree",
]
