"""Which words of a sentence may come twice: function words. A content word comes once."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

_LISTED = """
a an the this that these those some any all each every both another other others no not
i you he she it we they him her them his hers its their our your my who whom whose which what where when
one two three four five six seven eight nine ten several many few more most much
of in on at to into onto from by with without for about around above across after against along alongside
among as away back before behind below beneath beside besides between beyond down during front inside
like near next off out outside over past through throughout together toward towards under underneath until
up upon via while within
and or but nor so than then there here if because also just very too
is are was were be been being am has have had having do does did doing can could will would may might must
"""
FUNCTION_WORDS = frozenset(_LISTED.split())


def content_words(words: Sequence[str]) -> np.ndarray:
    """A bool (n,) per word: whether it is a content word: a noun, a verb, an adjective or an adverb."""
    return np.array([word not in FUNCTION_WORDS for word in words], bool)


def repeats_content_word(sentence: str) -> bool:
    """Whether a content word comes twice in a sentence of lower-case words.

    >>> repeats_content_word("a cup of coffee and a cup of tea")
    True
    >>> repeats_content_word("a dog on a beach")
    False
    """
    content = [word for word in sentence.split() if word not in FUNCTION_WORDS]
    return len(set(content)) < len(content)
