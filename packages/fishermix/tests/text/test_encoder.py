"""Sentence vectors equal FisherEncoder on the same words, whatever the path they took."""

import pickle
import threading
import warnings
from collections import Counter

import numpy as np
import pytest
from fishermix import FisherEncoder, SentenceEncoder, WordVectors
from fishermix.errors import FishermixError
from fishermix.mixture import Gaussian, Laplace, Mixture, StudentT
from fishermix.text import sentences as module
from fishermix.text import tokens
from fishermix.text.sentences import SentenceVectors
from fishermix.text.tokens import WordLookup, tokenize
from fishermix.text.whitening import Whitening
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.mixture import GaussianMixture as TheirMixture
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline

RNG = np.random.default_rng(0)
WORDS = [f"word{chr(97 + i // 26)}{chr(97 + i % 26)}" for i in range(200)]
VECTORS = WordVectors(
    [*WORDS, "two", "gray", "John", "snow", "covered"], RNG.normal(size=(205, 6)).astype(np.float32)
)
WHITENING = Whitening("pca").fit(VECTORS.vectors)


def mixture_of(*families, K=5, D=6, seed=0):
    rng = np.random.default_rng(seed)
    mixture = Mixture(K, families=families)
    mixture.weights_ = rng.dirichlet(np.full(K, 3.0))
    mixture.locations_ = rng.normal(size=(K, D))
    mixture.scales_ = rng.uniform(0.5, 1.0, (K, D))
    mixture.choice_ = rng.integers(0, len(families), (K, D))
    mixture.families_ = list(families)
    mixture.n_features_in_ = D
    return mixture


HYBRID, HEAVY = mixture_of(Gaussian(), Laplace()), mixture_of(Gaussian(), StudentT(), seed=1)
SENTENCES = [" ".join(RNG.choice(WORDS, RNG.integers(1, 12))) for _ in range(300)]


def sets_of(sentences):
    return [WHITENING.transform(np.stack([VECTORS[word] for word in tokenize(s)])) for s in sentences]


@pytest.mark.parametrize(
    "mixtures", [(HYBRID,), (HEAVY,), (HYBRID, HEAVY)], ids=["hybrid", "heavy", "fusion"]
)
@pytest.mark.parametrize("options", [{}, {"power": 1, "norm": None}, {"power": 0.7}])
def test_equals_fisher_encoder_on_the_same_words(mixtures, options):
    encoder = SentenceEncoder(VECTORS, WHITENING, mixtures, **options)
    expected = np.hstack(
        [FisherEncoder(mixture, **options).transform(sets_of(SENTENCES)) for mixture in mixtures]
    )
    found = encoder.transform(SENTENCES)
    assert found.dtype == np.float32
    assert found.shape == (300, encoder.n_features)
    assert_allclose(found, expected, atol=2e-4)
    for i in range(5):  # one sentence is not compiled
        assert_allclose(encoder.transform([SENTENCES[i]])[0], found[i], atol=1e-5)


def test_without_a_mixture_it_is_the_mean():
    expected = [members.mean(axis=0) for members in sets_of(SENTENCES)]
    assert_allclose(SentenceEncoder(VECTORS, WHITENING).transform(SENTENCES), expected, atol=1e-5)
    raw = SentenceEncoder(VECTORS).transform([f"{WORDS[0]} {WORDS[1]} {WORDS[0]}"])
    assert_allclose(raw[0], (2 * VECTORS[WORDS[0]] + VECTORS[WORDS[1]]) / 3, rtol=1e-5)


@pytest.mark.parametrize("mixtures", [(), (HYBRID, HEAVY)])
def test_blocks_are_the_rows_of_transform(mixtures):
    encoder = SentenceEncoder(VECTORS, WHITENING, mixtures)
    blocks = list(encoder.blocks(iter(SENTENCES), rows=128))
    assert [len(block) for block in blocks] == [128, 128, 44]
    assert_allclose(np.concatenate(blocks), encoder.transform(SENTENCES), atol=1e-6)


def test_forgetting_words_changes_nothing(monkeypatch):
    encoder = SentenceEncoder(VECTORS, WHITENING, (HYBRID,))
    expected = encoder.transform(SENTENCES)
    monkeypatch.setattr(module, "MOST_REMEMBERED_BYTES", 2000)
    forgetful = SentenceEncoder(VECTORS, WHITENING, (HYBRID,))
    assert_allclose(np.concatenate(list(forgetful.blocks(SENTENCES, rows=40))), expected, atol=1e-6)


def test_unknown_words_are_left_out_and_listed():
    encoder = SentenceEncoder(VECTORS, WHITENING, (HYBRID,))
    sentences = [f"{WORDS[0]} zzz {WORDS[1]} zzz yyy", "zzz", "", WORDS[2]]
    with pytest.warns(UserWarning, match="2 of 4 sentences have no word in the vocabulary") as caught:
        found = encoder.transform(sentences)
    assert len(caught) == 1
    assert (found[1:3] == 0).all()
    assert_allclose(found[0], encoder.transform([f"{WORDS[0]} {WORDS[1]}"])[0])
    bags = encoder.lookup.find(sentences)
    assert bags.out_of_vocabulary == [["zzz", "zzz", "yyy"], ["zzz"], [], []]
    assert bags.empty.tolist() == [1, 2]
    assert len(bags.rows) == 3
    with pytest.warns(UserWarning, match="2 of 4"):
        list(encoder.blocks(sentences))


def test_vectors_and_words_out_of_vocabulary_come_from_one_tokenization(monkeypatch):
    sentences = [f"{WORDS[0]} zzz {WORDS[1]} zzz", "snow-yyy two-zzz", "zzz", WORDS[2]]
    seen = []
    monkeypatch.setattr(tokens, "tokenize", lambda sentence: seen.append(sentence) or tokenize(sentence))
    found, bags = SentenceVectors(VECTORS, None, [HYBRID.parameters_]).encode(sentences)
    assert seen == sentences
    assert bags.out_of_vocabulary == [["zzz", "zzz"], [], ["zzz"], []]
    assert bags.empty.tolist() == [2]
    assert sum(map(len, bags.tokens)) == 8
    assert_array_equal(found.any(axis=1), [True, True, False, True])


@pytest.mark.parametrize("most", [1, 3, 1000])
def test_a_full_lookup_forgets_and_finds_the_same(monkeypatch, most):
    sentences = [*SENTENCES[:20], "snow-covered zzz", "zzz-covered snow-zzz", "2 grey john"]
    expected = WordLookup(VECTORS.words).find(sentences)
    monkeypatch.setattr(tokens, "MOST_REMEMBERED_TOKENS", most)
    lookup = WordLookup(VECTORS.words)
    for _ in range(2):
        found = lookup.find(sentences)
        assert_array_equal(found.rows, expected.rows)
        assert found.out_of_vocabulary == expected.out_of_vocabulary
    assert [VECTORS.words[row] for row in lookup["snow-covered"]] == ["snow", "covered"]
    assert lookup["yyy"] == ()


def test_a_second_fit_equals_the_first_of_a_new_encoder():
    used = SentenceEncoder(VECTORS, WHITENING, [HYBRID]).fit(SENTENCES)
    used.transform(SENTENCES)
    other = VECTORS[::-1]
    used.set_params(vectors=other, mixtures=[HEAVY], stop_words=["snow"]).fit(SENTENCES)
    new = SentenceEncoder(other, WHITENING, [HEAVY], stop_words=["snow"]).fit(SENTENCES)
    for sentences in (SENTENCES, ["snow-covered two"]):
        assert_array_equal(used.transform(sentences), new.transform(sentences))
    assert used.n_features == new.n_features


def test_the_plain_object_gives_the_bits_of_the_estimator():
    encoder = SentenceEncoder(VECTORS, WHITENING, [HYBRID, HEAVY], power=0.7, stop_words=["snow"])
    plain = SentenceVectors(
        VECTORS, WHITENING.whitening_, [HYBRID.parameters_, HEAVY.parameters_], 0.7, "l2", ["snow"]
    )
    again = pickle.loads(pickle.dumps(plain))
    for sentences in (SENTENCES, SENTENCES[:2]):
        assert_array_equal(plain.encode(sentences)[0], encoder.transform(sentences))
        assert_array_equal(again.encode(sentences)[0], encoder.transform(sentences))


def test_other_spellings_and_parts():
    encoder = SentenceEncoder(VECTORS)
    for sentence, words in {
        "2 grey": ["two", "gray"],
        "JOHN": ["John"],
        "snow-covered": ["snow", "covered"],
        "snow-zzz": ["snow"],
    }.items():
        expected = np.mean([VECTORS[word] for word in words], axis=0)
        assert_allclose(encoder.transform([sentence])[0], expected, rtol=1e-5)


def test_stop_words_and_ready_tokens():
    encoder = SentenceEncoder(VECTORS, stop_words=["the", "two", "snow"])
    assert_array_equal(encoder.transform(["the two gray"])[0], VECTORS["gray"])
    assert_array_equal(encoder.transform([["two", "gray"]])[0], VECTORS["gray"])
    assert_array_equal(encoder.transform(["snow-covered"])[0], VECTORS["covered"])
    assert encoder.lookup.find(["the two gray"]).tokens == [["gray"]]
    encoder.set_params(stop_words=())
    assert_allclose(encoder.transform(["two gray"])[0], (VECTORS["two"] + VECTORS["gray"]) / 2)


def test_no_sentences_and_a_bare_string():
    encoder = SentenceEncoder(VECTORS, WHITENING, (HYBRID,))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert encoder.transform([]).shape == (0, 60)
    for wrong in ("a dog", b"a dog", None):
        with pytest.raises(FishermixError, match="list of sentences"):
            encoder.transform(wrong)
    with pytest.raises(FishermixError, match=r"3 dimensions, but mixtures\[0\] has 6"):
        SentenceEncoder(WordVectors(["a"], np.ones((1, 3))), mixtures=(HYBRID,)).transform(["a"])


@pytest.mark.parametrize("wrong", [None, b"dog", float("nan"), ["a", b"dog"], [["a", "dog"]], 3])
def test_what_is_no_sentence_is_named(wrong):
    encoder = SentenceEncoder(VECTORS, WHITENING, (HYBRID,))
    for use in (encoder.transform, encoder.lookup.find, lambda sentences: list(encoder.blocks(sentences))):
        with pytest.raises(FishermixError, match="A sentence must be a string or a list of words, not"):
            use([WORDS[0], wrong])


def test_an_iterator_of_sentences():
    encoder = SentenceEncoder(VECTORS, WHITENING, (HYBRID,))
    assert_array_equal(encoder.transform(iter(SENTENCES)), encoder.transform(SENTENCES))


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"mixtures": HYBRID}, r"mixtures is a Mixture. Give a list, such as \[mixture\]"),
        ({"mixtures": None}, "mixtures is a NoneType. Give a list"),
        ({"mixtures": [HYBRID, Mixture(2)]}, r"mixtures\[1\], a fishermix.*Mixture, is not a fitted mixture"),
        ({"mixtures": [TheirMixture(2)]}, r"mixtures\[0\], a sklearn.*is not a fitted mixture"),
        ({"mixtures": [HYBRID, mixture_of(Gaussian(), D=3)]}, r"6 dimensions, but mixtures\[1\] has 3"),
        ({"vectors": {"dog": [1.0]}}, "vectors is a dict, not WordVectors"),
        ({"stop_words": "english"}, "stop_words is 'english'. Give a list of words"),
    ],
)
def test_parts_that_do_not_do_are_named(parameters, message):
    encoder = SentenceEncoder(**{"vectors": VECTORS, **parameters})
    for use in (
        lambda: encoder.transform(SENTENCES),
        lambda: encoder.n_features,
        encoder.get_feature_names_out,
    ):
        with pytest.raises(FishermixError, match=message):
            use()


def test_a_clone_keeps_what_is_fitted():
    encoder = SentenceEncoder(VECTORS, WHITENING, [HYBRID], power=0.7, stop_words=["the"])
    expected = encoder.transform(SENTENCES)
    twin = clone(make_pipeline(encoder))[0]
    assert twin is not encoder
    assert_array_equal(twin.transform(SENTENCES), expected)
    twin.set_params(power=1)
    assert not np.array_equal(twin.transform(SENTENCES), expected)
    assert_array_equal(encoder.transform(SENTENCES), expected)
    with pytest.raises(FishermixError, match="whitening is already fitted"):
        encoder.set_params(whitening__kind="none")


def test_it_goes_through_cross_validation():
    labels = SentenceEncoder(VECTORS).transform(SENTENCES)[:, 0] > 0
    pipeline = make_pipeline(SentenceEncoder(VECTORS, None, [HYBRID]), LogisticRegression())
    scores = cross_val_score(pipeline, SENTENCES, labels, cv=3, error_score="raise")
    assert scores.min() > 0.7  # about half of the labels are True


@pytest.mark.parametrize("stop_words", [(), ("snow",)])
def test_with_the_words_of_some_sentences_these_are_encoded_alike(stop_words):
    encoder = SentenceEncoder(VECTORS, WHITENING, (HYBRID,), stop_words=stop_words)
    sentences = [*SENTENCES[:3], "2 grey", "snow-covered"]
    words = {VECTORS.words[row] for row in WordLookup(VECTORS.words).find(sentences).rows}
    few, more = encoder.with_words_of(sentences), encoder.with_words_of(sentences, len(words) + 7)
    assert set(few.vectors) == words
    assert list(more.vectors) == [
        *[word for word in VECTORS if word in words or word in [w for w in VECTORS if w not in words][:7]]
    ]
    for part in (few, more):
        assert_array_equal(part.transform(sentences), encoder.transform(sentences))
    assert len(encoder.vectors) == 205


def test_names():
    names = SentenceEncoder(VECTORS, None, (HYBRID, HEAVY)).get_feature_names_out()
    assert len(names) == 120
    assert names[0] == "mixture_0_location_0_0"
    assert names[-1] == "mixture_1_scale_4_5"
    assert SentenceEncoder(VECTORS).get_feature_names_out()[-1] == "mean_5"


def test_threads_and_pickles_give_the_same():
    encoder = SentenceEncoder(VECTORS, WHITENING, (HYBRID,))
    found = {}

    def encode(i):
        found[i] = encoder.transform(SENTENCES[i : i + 3])

    threads = [threading.Thread(target=encode, args=(i,)) for i in range(0, 60, 3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    expected = pickle.loads(pickle.dumps(encoder)).transform(SENTENCES[:60])
    assert_allclose(np.concatenate([found[i] for i in sorted(found)]), expected, atol=1e-5)


@pytest.mark.real
def test_flickr8k_is_known_almost_in_full(flickr8k, word2vec):
    lines = (flickr8k / "Flickr8k.token.txt").read_text("utf8").splitlines()
    captions = [line.split("\t", 1)[1] for line in lines if ".jpg.1#" not in line]
    encoder = SentenceEncoder(WordVectors.load(word2vec), stop_words=("a", "and", "of", "to"))
    bags = encoder.lookup.find(captions)
    unknown = Counter(word for words in bags.out_of_vocabulary for word in words)
    assert len(captions) == 40_455
    assert unknown.total() < 0.03 * sum(map(len, bags.tokens))
    assert len(bags.empty) < 10
    assert [word for word, _ in unknown.most_common(2)] == ["frisbee", "skateboarder"]


def test_feature_groups_are_the_columns_of_the_components():
    encoder = SentenceEncoder(VECTORS, WHITENING, (HYBRID, HEAVY))
    names = encoder.get_feature_names_out()
    columns = [
        [name for part in group for name in names[part]] for group in encoder.sentence_vectors.feature_groups
    ]
    assert sorted(name for group in columns for name in group) == sorted(names)
    of_second = [[f"mixture_1_{half}_3_{d}" for half in ("location", "scale") for d in range(6)]]
    assert [group for group in columns if group[0] == "mixture_1_location_3_0"] == of_second
    assert SentenceEncoder(VECTORS, WHITENING, ()).sentence_vectors.feature_groups is None
