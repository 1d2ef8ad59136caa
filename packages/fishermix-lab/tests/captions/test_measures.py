"""Caption measures against values by hand, sacrebleu, a naive CIDEr-D, and the COCO tools' own figures."""

import math
from dataclasses import asdict

import numpy as np
import pytest
import sacrebleu
from fishermix_lab.captions.measures import (
    bleu,
    caption_scores,
    caption_tokens,
    cider_d,
    originality,
    rouge_l,
)
from fishermix_lab.datasets.readers import open_dataset
from hypothesis import given, settings
from hypothesis import strategies as st

CANDIDATES = [
    "A dog runs across the green grass.",
    "Two men are playing football on a field",
    "a woman in a red T-shirt rides a bicycle",
    "A dog's ball isn't in the water .",
    "the the the the",
]
REFERENCES = [
    [
        "A brown dog is running through green grass.",
        "The dog runs across a field of grass",
        "Dog running outside",
    ],
    ["Two men play football.", "Two football players are on the field, playing a match"],
    [
        "A woman rides her bicycle down the street.",
        "A lady in a red T-shirt is riding a bike",
        "Someone on a bicycle",
        "a woman in red rides a bicycle past a shop",
    ],
    ["The dog's ball floats in the water.", "A ball isn't in the water, it is on the beach"],
    ["The boat is on the lake.", "a boat on the water"],
]
# PyPI pycocoevalcap 1.2: PTBTokenizer (Java), Bleu(4), Rouge(), Cider() (which computes CIDEr-D), times 100.
COCO_TOOLS = {
    "bleu1": 89.61711171646925,
    "bleu2": 69.10652356040399,
    "bleu3": 55.13147986989975,
    "bleu4": 41.21831376892152,
    "rouge_l": 60.531562380211824,
    "cider_d": 197.50589123343468,
}
# The same on Flickr8K's test images: the first sentence as the candidate, the other four as references.
COCO_TOOLS_FLICKR8K = {
    "bleu1": 63.64127012682705,
    "bleu2": 44.57777185666552,
    "bleu3": 30.549035362497285,
    "bleu4": 20.945675889555993,
    "rouge_l": 48.75475010364561,
    "cider_d": 78.85967975248741,
}

words = st.lists(st.sampled_from(["a", "dog", "cat", "on", "the", "mat"]), min_size=1, max_size=9)
corpora = st.lists(st.tuples(words, st.lists(words, min_size=1, max_size=4)), min_size=1, max_size=5)


def split(corpus):
    return [candidate for candidate, _ in corpus], [references for _, references in corpus]


def test_equals_the_coco_tools():
    assert caption_scores(CANDIDATES, REFERENCES) == pytest.approx(COCO_TOOLS, rel=1e-8)


@pytest.mark.slow
@pytest.mark.real
def test_equals_the_coco_tools_on_flickr8k(flickr8k):
    test = open_dataset(f"flickr8k:{flickr8k}").part("test")
    captions = [[] for _ in range(len(test))]
    for sentence, image in zip(test.sentences, test.image_of):
        captions[image].append(sentence)
    scores = caption_scores([own[0] for own in captions], [own[1:] for own in captions])
    assert scores == pytest.approx(COCO_TOOLS_FLICKR8K, abs=1e-3)


@pytest.mark.slow
@settings(max_examples=100, deadline=None)
@given(corpora)
def test_bleu_equals_sacrebleu(corpus):
    candidates, references = split(corpus)
    most = max(len(of_image) for of_image in references)
    streams = [
        [" ".join(of_image[i]) if i < len(of_image) else None for of_image in references] for i in range(most)
    ]
    for n, score in enumerate(bleu(candidates, references), 1):
        peer = sacrebleu.BLEU(smooth_method="none", tokenize="none", max_ngram_order=n, effective_order=False)
        expected = peer.corpus_score([" ".join(text) for text in candidates], streams).score
        assert 100 * score == pytest.approx(expected, abs=1e-9)


def naive_cider_d(candidates, references):
    """Dense vectors over all n-grams, straight from the definition."""
    scores = np.zeros(len(candidates))
    for n in range(1, 5):

        def grams(text, n=n):
            return [tuple(text[i : i + n]) for i in range(len(text) - n + 1)]

        vocabulary = sorted({g for texts in [*references, candidates] for text in texts for g in grams(text)})
        in_images = np.array(
            [sum(any(g in grams(t) for t in texts) for texts in references) for g in vocabulary]
        )
        rarity = np.log(len(references)) - np.log(np.maximum(1, in_images))
        for image, (candidate, texts) in enumerate(zip(candidates, references)):
            c = np.array([grams(candidate).count(g) for g in vocabulary]) * rarity
            for text in texts:
                r = np.array([grams(text).count(g) for g in vocabulary]) * rarity
                if c.any() and r.any():
                    cosine = np.minimum(c, r) @ r / np.linalg.norm(c) / np.linalg.norm(r)
                    gap = len(candidate) - len(text)
                    scores[image] += cosine * math.exp(-gap * gap / 72) / len(texts) / 4 * 10
    return scores.mean()


@pytest.mark.slow
@settings(max_examples=100, deadline=None)
@given(corpora)
def test_cider_d_equals_the_definition(corpus):
    assert cider_d(*split(corpus)) == pytest.approx(naive_cider_d(*split(corpus)), abs=1e-9)


def test_bleu_by_hand():
    # Papineni et al.'s example: "the" seven times; the reference has it twice.
    assert bleu([["the"] * 7], [[["the", "cat", "is", "on", "the", "mat"]]])[0] == pytest.approx(2 / 7)
    # The lengths 3 and 5 are equally close to 4: the shorter counts, so there is no penalty.
    assert bleu([["a"] * 4], [[["a"] * 3, ["a"] * 5]])[0] == pytest.approx(1.0)
    assert bleu([["a"] * 2], [[["a"] * 4]])[0] == pytest.approx(math.exp(1 - 4 / 2))


def test_rouge_l_by_hand():
    # Common subsequence "a dog on": precision 3/4, recall 3/5.
    candidate, reference = ["a", "dog", "sits", "on"], ["a", "big", "dog", "lies", "on"]
    expected = (1 + 1.44) * 0.75 * 0.6 / (0.6 + 1.44 * 0.75)
    assert rouge_l([candidate], [[reference]]) == pytest.approx(expected)
    assert rouge_l([candidate, ["x"]], [[["nothing"], reference], [["y"]]]) == pytest.approx(expected / 2)


def test_cider_d_by_hand():
    # Two images with nothing in common: every n-gram has the same rarity, and a perfect caption scores 10.
    texts = [["a", "b", "c", "d", "e"], ["v", "w", "x", "y", "z"]]
    assert cider_d(texts, [[text] for text in texts]) == pytest.approx(10)
    # A caption that stands for every image has no rare word at all.
    assert cider_d([texts[0]] * 2, [[texts[0]]] * 2) == 0


@pytest.mark.parametrize(
    ("caption", "tokens"),
    [
        ("A man, a plan -- (Panama)!", "a man a plan panama"),
        ("They don't; we cannot. She’ll", "they do n't we can not she 'll"),
        ("the dogs' 1,000 t-shirts at 2:30 & 4th u.s. St.", "the dogs 1,000 t-shirts at 2:30 & 4th u.s. st"),
        ("\"Rock'n'roll\" café", "rock'n'roll café"),
        ("...", ""),
        ("", ""),
    ],
)
def test_tokens(caption, tokens):
    assert caption_tokens(caption) == tokens.split()


@given(st.text(max_size=40))
def test_any_text_has_tokens_without_spaces_and_stays_the_same_in_lower_case(text):
    tokens = caption_tokens(text)
    assert all(token and not any(c.isspace() for c in token) for token in tokens)
    assert caption_tokens(text.lower()) == tokens


def test_empty_candidates_score_zero():
    assert set(caption_scores(["", "..."], [["a dog"], ["a cat", ""]]).values()) == {0.0}


@pytest.mark.parametrize(
    ("candidates", "references"), [([], []), (["a"], []), (["a"], [[]]), (["a"], ["a dog"])]
)
def test_wrong_input_is_refused(candidates, references):
    with pytest.raises(ValueError):
        caption_scores(candidates, references)


def test_counts_ignore_case_and_punctuation():
    found = originality(["A dog runs.", "a dog runs", "Two cats sleep here!"], ["a Dog runs", "cats"])
    assert (found.sentences, found.distinct, found.words) == (3, 2, 7)
    assert found.new == 100 / 3
    assert found.length == 10 / 3


def test_nothing_to_compare_with_and_nothing_at_all():
    assert originality(["a dog"]).new is None
    assert asdict(originality([], ["a dog"])) == {
        "sentences": 0,
        "new": 0.0,
        "distinct": 0,
        "words": 0,
        "length": 0.0,
    }
