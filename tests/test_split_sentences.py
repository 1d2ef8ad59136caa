"""Markdown with one sentence per line, as the tool writes it."""

from split_sentences import list_lines

BEFORE = """# A heading. With a dot

Two sentences. They share
a line, and `a.b. C` is code. See [a. B](c.md). 2 is a number.

- An item of E. Xample et al. Here is more.
- **Bold.** It begins the item.

| a table. | Stays. |

```
Code. Stays.
```

- A. Author and B. Author (2015). A title. *A journal*.
"""
AFTER = """# A heading. With a dot

Two sentences.
They share a line, and `a.b. C` is code.
See [a. B](c.md).
2 is a number.

- An item of E. Xample et al. Here is more.
- **Bold.** It begins the item.

| a table. | Stays. |

```
Code. Stays.
```

- A. Author and B. Author (2015). A title. *A journal*.
"""


def test_each_sentence_has_a_line():
    assert "\n".join(list_lines(BEFORE.split("\n"))) == AFTER
    assert "\n".join(list_lines(AFTER.split("\n"))) == AFTER
