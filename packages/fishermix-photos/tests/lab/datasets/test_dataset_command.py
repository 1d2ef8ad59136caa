"""fishermix dataset info."""

from fishermix_photos.cli import load_commands
from typer.testing import CliRunner


def test_info_prints_counts_and_problems(tmp_path):
    for name in ("a.jpg", "b.jpg", "c.jpg"):
        (tmp_path / name).write_bytes(b"")
    rows = "a.jpg,one,train\na.jpg,two,train\nb.jpg,three,val\nc.jpg,,test\n"
    (tmp_path / "captions.csv").write_text("image,caption,split\n" + rows)
    result = CliRunner().invoke(load_commands(), ["dataset", "info", f"folder:{tmp_path}"])
    assert result.exit_code == 0
    assert result.stdout.splitlines() == [
        "folder: 2 images, 3 sentences",
        "sentences per image: 1 to 2, mean 1.50",
        "train: 1 images, 2 sentences",
        "dev: 1 images, 1 sentences",
        "problem: Skipped 1 empty caption.",
        "problem: Skipped 1 image without a caption: c.jpg.",
    ]
