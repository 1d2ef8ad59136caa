"""Measures of generated captions: BLEU-1 to 4, ROUGE-L and CIDEr-D as in the COCO tools, and originality.

METEOR is missing: without the stemmer, synonyms and paraphrase tables of its Java program, it would give
other figures under the same name.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from fishermix.text.tokens import tokenize

ORDERS = 4  # n-grams of one to four tokens

_PLAIN = str.maketrans({"‘": "'", "’": "'", "“": '"', "”": '"'})
_TOKEN = re.compile(
    r"""
    n't\b | '(?:s|re|ve|ll|d|m)\b                         # the second half of isn't and dog's
    | (?:[^\W\d_]\.){2,}                                  # u.s.
    | can(?=not\b) | [^\W_]+?(?=n't\b)                    # the first half of cannot and isn't
    | [^\W_]+ (?: (?: [-/&]                               # t-shirt, his/her, at&t, o'clock, 2.5
                    | '(?!(?:s|re|ve|ll|d|m)\b)
                    | (?<=\d)[.,:](?=\d) ) [^\W_]+ )*
    | [^\w\s.,:;!?'"`()\[\]{}-]                           # any other sign, such as & or $
    """,
    re.VERBOSE,
)

Ngrams = Counter[tuple[str, ...]]


def caption_tokens(caption: str) -> list[str]:
    """The tokens that the measures compare, in effect those of the COCO tools' Penn Treebank tokenizer.

    Tokens are lower case, without punctuation and brackets; clitics are separate tokens: dog 's, is n't.
    """
    return _TOKEN.findall(caption.translate(_PLAIN).lower())


def caption_scores(candidates: Sequence[str], references: Sequence[Sequence[str]]) -> dict[str, float]:
    """Scores of one candidate sentence per image against the sentences that people wrote for it.

    Parameters
    ----------
    candidates : sequence of str
        One sentence per image.
    references : sequence of lists of str
        The sentences that people wrote for each image.

    Returns
    -------
    scores : dict of str to float
        `bleu1` to `bleu4`, `rouge_l` and `cider_d`, times 100 (the COCO tools' 0.478 is 47.8).

    Examples
    --------
    >>> scores = caption_scores(["a dog runs"], [["a dog runs fast", "the dog is running"]])
    >>> round(scores["bleu1"]), round(scores["rouge_l"])
    (72, 84)
    """
    if isinstance(candidates, str) or len(candidates) != len(references) or not len(candidates):
        raise ValueError(
            f"Pass as many candidates as lists of references, not {len(candidates)} and {len(references)}."
        )
    if any(isinstance(of_image, str) or not len(of_image) for of_image in references):
        raise ValueError("Every candidate needs a list of at least one reference.")
    candidate_tokens = [caption_tokens(candidate) for candidate in candidates]
    reference_tokens = [[caption_tokens(text) for text in of_image] for of_image in references]
    scores = {f"bleu{n}": score for n, score in enumerate(bleu(candidate_tokens, reference_tokens), 1)}
    scores["rouge_l"] = rouge_l(candidate_tokens, reference_tokens)
    scores["cider_d"] = cider_d(candidate_tokens, reference_tokens)
    return {name: 100 * score for name, score in scores.items()}


def bleu(candidates: list[list[str]], references: list[list[list[str]]]) -> list[float]:
    """BLEU-1 … BLEU-4 of the corpus (Papineni et al. 2002), without smoothing, from tokens.

    BLEU-n = min(1, exp(1 - r/c)) (p_1 … p_n)^(1/n): c is the length of all candidates, r the sum of the
    reference lengths closest to each candidate's (the shorter of two equally close), and p_n the share of the
    candidates' n-grams that occur in a reference, each counted at most as often as in the reference that has
    most of it.
    """
    matched, guessed = [0] * ORDERS, [0] * ORDERS
    candidate_length = reference_length = 0
    for candidate, of_image in zip(candidates, references):
        candidate_length += len(candidate)
        reference_length += min((abs(len(text) - len(candidate)), len(text)) for text in of_image)[1]
        for n in range(1, ORDERS + 1):
            allowed: Ngrams = Counter()
            for text in of_image:
                allowed |= _count_ngrams(text, n)
            matched[n - 1] += (_count_ngrams(candidate, n) & allowed).total()
            guessed[n - 1] += max(0, len(candidate) - n + 1)
    if not candidate_length:
        return [0.0] * ORDERS
    brevity = min(1.0, math.exp(1 - reference_length / candidate_length))
    precisions = [m / g if g else 0.0 for m, g in zip(matched, guessed)]
    return [brevity * math.prod(precisions[:n]) ** (1 / n) for n in range(1, ORDERS + 1)]


def rouge_l(candidates: list[list[str]], references: list[list[list[str]]]) -> float:
    """Mean ROUGE-L (Lin 2004): F of precision and recall of the longest common subsequence, from tokens.

    F = (1 + b²) P R / (R + b² P), b = 1.2, with the best precision and the best recall over the references.
    """
    beta = 1.2  # recall weighs more than precision, as in the COCO tools
    total = 0.0
    for candidate, of_image in zip(candidates, references):
        common = [_measure_common_subsequence(candidate, text) for text in of_image]
        recall = max(c / len(text) if text else 0.0 for c, text in zip(common, of_image))
        precision = max(common) / len(candidate) if candidate else 0.0
        if precision and recall:
            total += (1 + beta**2) * precision * recall / (recall + beta**2 * precision)
    return total / len(candidates)


def cider_d(candidates: list[list[str]], references: list[list[list[str]]]) -> float:
    """Mean CIDEr-D (Vedantam et al. 2015), from tokens; document frequencies come from these references.

    With g the n-gram counts weighted by log(images / images whose references have the n-gram)::

        CIDEr-D = 10/4 Σ_n mean over references of exp(-(l_c - l_r)²/72) min(g_c, g_r)·g_r
        / (norm(g_c) norm(g_r)).
    """
    sigma = 6.0  # tokens: the width of the length penalty, as in the COCO tools
    total = 0.0
    for n in range(1, ORDERS + 1):
        counted = [[_count_ngrams(text, n) for text in of_image] for of_image in references]
        images_with = Counter(ngram for of_image in counted for ngram in set().union(*of_image))
        rarity = {ngram: math.log(len(references) / images) for ngram, images in images_with.items()}
        unseen = math.log(len(references))

        def weigh(
            counts: Ngrams, rarity: dict[tuple[str, ...], float] = rarity, unseen: float = unseen
        ) -> dict[tuple[str, ...], float]:
            return {ngram: count * rarity.get(ngram, unseen) for ngram, count in counts.items()}

        for candidate, texts, counts in zip(candidates, references, counted):
            ours = weigh(_count_ngrams(candidate, n))
            for text, of_text in zip(texts, counts):
                apart = len(candidate) - len(text)
                closeness = math.exp(-(apart**2) / (2 * sigma**2))
                total += closeness * _clip_cosine(ours, weigh(of_text)) / len(texts)
    return 10 * total / ORDERS / len(candidates)


@dataclass(frozen=True)
class Originality:
    """Counts over sentences, which are compared word by word after `tokenize`.

    new : percentage of the sentences that are not in the training set; None without a training set
    distinct : the number of different sentences
    words : the number of different words
    length : the mean number of words per sentence
    """

    sentences: int
    new: float | None
    distinct: int
    words: int
    length: float


def originality(sentences: Sequence[str], training: Iterable[str] | None = None) -> Originality:
    """How much of `sentences` is new compared with the `training` sentences, and how varied they are."""
    tokenized = [tuple(tokenize(sentence)) for sentence in sentences]
    n = max(len(tokenized), 1)
    new = None
    if training is not None:
        known = {tuple(tokenize(sentence)) for sentence in training}
        new = 100 * sum(words not in known for words in tokenized) / n
    return Originality(
        sentences=len(tokenized),
        new=new,
        distinct=len(set(tokenized)),
        words=len({word for words in tokenized for word in words}),
        length=sum(map(len, tokenized)) / n,
    )


def _count_ngrams(tokens: list[str], n: int) -> Ngrams:
    return Counter(zip(*(tokens[start:] for start in range(n))))


def _clip_cosine(candidate: dict[tuple[str, ...], float], reference: dict[tuple[str, ...], float]) -> float:
    lengths = math.hypot(*candidate.values()) * math.hypot(*reference.values())
    if not lengths:
        return 0.0
    return (
        sum(min(weight, reference[g]) * reference[g] for g, weight in candidate.items() if g in reference)
        / lengths
    )


def _measure_common_subsequence(a: list[str], b: list[str]) -> int:
    row = [0] * (len(b) + 1)
    for token in a:
        diagonal = 0
        for column, other in enumerate(b, 1):
            above = row[column]
            row[column] = diagonal + 1 if token == other else max(above, row[column - 1])
            diagonal = above
    return row[-1]
