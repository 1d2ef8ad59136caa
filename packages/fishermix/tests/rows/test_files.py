"""Every kind of table gives the rows that were written, and says what is wrong with a bad one."""

import numpy as np
import pytest
from fishermix.rows import BlockTable, FileTable, StreamSource, open_table
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from refuses import refuses

ROWS = np.arange(3000, dtype=np.float32).reshape(1000, 3)


class Restarting:
    def __iter__(self):
        yield from (ROWS[:7], ROWS[7:7], ROWS[7:900], ROWS[900:])


def make(kind, folder):
    path = folder / "rows.npy"
    if kind == "npy":
        np.save(path, ROWS)
        return path
    if kind == "parts":
        paths = [folder / f"{number}.npy" for number in range(3)]
        for part, rows in zip(paths, np.split(ROWS, [10, 600])):
            np.save(part, rows)
        return paths
    if kind == "blocks":
        return Restarting()
    np.save(path, np.concatenate([ROWS[:4], ROWS]))
    return np.load(path, mmap_mode="r")[4:]


KINDS = ("npy", "parts", "blocks", "mapped")


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(spans=st.lists(st.tuples(st.integers(0, 999), st.integers(1, 400)), max_size=5))
def test_any_rows_are_read(kind, tmp_path, spans):
    table = open_table(make(kind, tmp_path))
    assert table.shape == ROWS.shape
    assert table.dtype == np.float32
    for start, length in spans:
        stop = min(start + length, len(ROWS))
        np.testing.assert_array_equal(table.read(start, stop), ROWS[start:stop])


def test_positions_are_taken(tmp_path):
    positions = np.array([0, 5, 6, 130, 999])
    for kind in KINDS:
        source = StreamSource(make(kind, tmp_path))
        np.testing.assert_array_equal(source.read_rows(positions), ROWS[positions])


def test_a_fortran_view_of_a_mapped_file_is_read_too(tmp_path):
    np.save(tmp_path / "rows.npy", ROWS)
    mapped = np.load(tmp_path / "rows.npy", mmap_mode="r")[::2]
    np.testing.assert_array_equal(BlockTable([mapped]).read(3, 9), ROWS[::2][3:9])


def wrong_files(folder):
    np.save(folder / "cube.npy", np.zeros((2, 2, 2)))
    np.save(folder / "fortran.npy", np.asfortranarray(np.zeros((4, 5))))
    (folder / "rubbish.npy").write_bytes(b"rubbish")
    (folder / "table.csv").write_text("1,2")


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("cube.npy", "wrong_file"),
        ("fortran.npy", "wrong_file"),
        ("rubbish.npy", "damaged"),
        ("table.csv", "wrong_file"),
        ("absent.npy", "not_found"),
    ],
)
def test_wrong_files_are_named(tmp_path, name, code):
    wrong_files(tmp_path)
    with refuses(code):
        open_table(tmp_path / name)


def test_a_file_cut_short_is_noticed(tmp_path):
    np.save(tmp_path / "rows.npy", ROWS)
    table = open_table(tmp_path / "rows.npy")
    with open(tmp_path / "rows.npy", "r+b") as file:
        file.truncate(5000)
    with refuses("damaged"):
        table.read(0, 1000)


def test_blocks_must_be_alike_and_come_again():
    with refuses("not_repeatable"):
        BlockTable(block for block in (ROWS,))
    with refuses("wrong_shape"):
        BlockTable([ROWS, ROWS[:, :2]])
    with refuses("too_few"):
        BlockTable([])
    fewer = [ROWS]
    table = BlockTable(fewer)
    fewer[0] = ROWS[:10]
    with refuses("not_repeatable"):
        table.read(0, 20)


def test_a_file_with_nothing_in_it_is_told(tmp_path):
    (tmp_path / "a.npy").touch()
    with refuses("damaged"):
        open_table(tmp_path / "a.npy")


def test_files_must_have_rows_of_the_same_length(tmp_path):
    np.save(tmp_path / "a.npy", ROWS)
    np.save(tmp_path / "b.npy", ROWS[:, :2])
    with refuses("wrong_shape"):
        FileTable([tmp_path / "a.npy", tmp_path / "b.npy"])
