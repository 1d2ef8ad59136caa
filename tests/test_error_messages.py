"""All messages are in one file, where they are read as text."""

import list_messages


def test_the_file_of_messages_is_that_of_the_code():
    assert list_messages.FILE.read_text("utf8") == list_messages.format_messages(), (
        "run python tools/list_messages.py, and read what changed"
    )
