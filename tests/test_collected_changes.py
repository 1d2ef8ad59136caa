"""The change log is made of one file for each change."""

from collect_changes import collect_changes


def test_the_lines_of_all_files_come_last_in_the_first_release(tmp_path):
    log = tmp_path / "CHANGELOG.md"
    log.write_text("# Changelog\n\n## 2\n\n### Changes\n- One.\n  More.\n\n## 1\n\n### Changes\n- Old.\n")
    changes = tmp_path / "changes"
    changes.mkdir()
    (changes / "README.md").write_text("About this folder.\n")
    (changes / "7.md").write_text("Two.\n")
    (changes / "7.fix.md").write_text("- Three.\n")
    assert collect_changes(tmp_path) == 2
    text = log.read_text()
    assert text.startswith("# Changelog\n\n## 2\n\n### Changes\n- One.\n  More.\n- Three.\n- Two.\n\n## 1\n")
    assert [path.name for path in changes.iterdir()] == ["README.md"]
    assert collect_changes(tmp_path) == 0
    assert log.read_text() == text
