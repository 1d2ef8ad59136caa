"""How much of what a captioner writes is its own: new sentences, different sentences, different words."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass

from fishermix.text.tokens import tokenize


@dataclass(frozen=True)
class Originality:
    """Counts over a list of sentences, compared word by word after `tokenize`.

    new : percent of the sentences that are not in the training set, None when there is none to compare with
    distinct : how many different sentences there are
    words : how many different words they use
    length : mean number of words of a sentence
    """

    sentences: int
    new: float | None
    distinct: int
    words: int
    length: float

    def as_dict(self) -> dict[str, float | None]:
        return asdict(self)


def originality(sentences: Sequence[str], training: Iterable[str] | None = None) -> Originality:
    """What is original in `sentences`, seen from the `training` sentences.

    >>> originality(["A dog runs.", "a dog runs", "a cat"], training=["A dog runs!"])
    Originality(sentences=3, new=33.33333333333333, distinct=2, words=4, length=2.6666666666666665)
    """
    cut = [tuple(tokenize(sentence)) for sentence in sentences]
    n = max(len(cut), 1)
    new = None
    if training is not None:
        known = {tuple(tokenize(sentence)) for sentence in training}
        new = 100 * sum(words not in known for words in cut) / n
    return Originality(
        sentences=len(cut),
        new=new,
        distinct=len(set(cut)),
        words=len({word for words in cut for word in words}),
        length=sum(map(len, cut)) / n,
    )
