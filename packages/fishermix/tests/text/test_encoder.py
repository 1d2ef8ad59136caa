"""Sentence vectors equal FisherEncoder on the same words, whatever the path they took."""

import pickle
import threading
import warnings
from collections import Counter

import numpy as np
import pytest
from fishermix import FisherEncoder, GaussianMixture, LaplacianMixture, SentenceEncoder, WordVectors
from fishermix.errors import FishermixError
from fishermix.mixture import Gaussian, Laplace, Mixture, StudentT
from fishermix.mixture.m_step import ScoringFit
from fishermix.text import lookup as lookup_module
from fishermix.text import sentences as module
from fishermix.text.lookup import WordLookup
from fishermix.text.sentences import SentenceVectors
from fishermix.text.tokens import tokenize
from fishermix.text.whitening import Whitening
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from refuses import refuses
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.mixture import GaussianMixture as TheirMixture
from sklearn.model_selection import GridSearchCV, cross_val_score
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
OF_MIXTURES = SentenceEncoder.from_fitted(VECTORS, WHITENING, (HYBRID, HEAVY))
OF_MEANS = SentenceEncoder.from_fitted(VECTORS, WHITENING)


def sets_of(sentences):
    return [WHITENING.transform(np.stack([VECTORS[word] for word in tokenize(s)])) for s in sentences]


@pytest.mark.slow
@pytest.mark.parametrize(
    "mixtures", [(HYBRID,), (HEAVY,), (HYBRID, HEAVY)], ids=["hybrid", "heavy", "fusion"]
)
@pytest.mark.parametrize("options", [{}, {"power": 1, "norm": None}, {"power": 0.7}])
def test_equals_fisher_encoder_on_the_same_words(mixtures, options):
    encoder = SentenceEncoder.from_fitted(VECTORS, WHITENING, mixtures, **options)
    expected = np.hstack(
        [FisherEncoder.from_fitted(mixture, **options).transform(sets_of(SENTENCES)) for mixture in mixtures]
    )
    found = encoder.transform(SENTENCES)
    assert found.dtype == np.float32
    assert found.shape == (300, encoder.n_features)
    assert_allclose(found, expected, atol=2e-4)
    for i in range(5):  # one sentence is not compiled
        assert_allclose(encoder.transform([SENTENCES[i]])[0], found[i], atol=1e-5)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.sampled_from(WORDS), min_size=1, max_size=12), st.randoms(use_true_random=False))
def test_neither_the_order_of_the_words_nor_other_sentences_count(words, random):
    shuffled = random.sample(words, len(words))
    for encoder in (OF_MIXTURES, OF_MEANS):
        alone = encoder.transform([words])
        assert_allclose(encoder.transform([shuffled]), alone, atol=1e-5)
        assert_allclose(encoder.transform([*SENTENCES[:40], " ".join(words)])[-1:], alone, atol=1e-5)
        assert_array_equal(encoder.transform([[*words, "zzz"]]), alone)


def test_without_a_mixture_it_is_the_mean():
    expected = [members.mean(axis=0) for members in sets_of(SENTENCES)]
    assert_allclose(SentenceEncoder.from_fitted(VECTORS, WHITENING).transform(SENTENCES), expected, atol=1e-5)
    raw = SentenceEncoder(VECTORS).transform([f"{WORDS[0]} {WORDS[1]} {WORDS[0]}"])
    assert_allclose(raw[0], (2 * VECTORS[WORDS[0]] + VECTORS[WORDS[1]]) / 3, rtol=1e-5)


class Cusp(Laplace):
    """A Laplacian whose score is infinite at the center."""

    name = "cusp"
    density_form, m_step = None, ScoringFit

    def location_score(self, z):
        return np.where(z == 0, np.inf, np.sign(z))


@pytest.mark.filterwarnings("error::RuntimeWarning")
def test_a_word_with_an_infinite_score_is_an_error_and_not_nan():
    words = WordVectors(["center", "a", "b"], np.array([[0.0, 0.0], [1.0, 2.0], [3.0, -1.0]]))
    mixture = Mixture.from_parameters([1.0], np.zeros((1, 2)), np.ones((1, 2)), families=[Cusp()])
    encoder = SentenceEncoder.from_fitted(words, None, [mixture])
    usual = encoder.transform(["a b"])
    for refusing in (encoder, SentenceEncoder.from_fitted(words, None, [mixture])):
        with refuses("infinite_score"):
            refusing.transform(["a center"])
        assert_array_equal(refusing.transform(["a b"]), usual)
    for norm in ("l2", "intra", None):
        with refuses("infinite_score"):
            FisherEncoder.from_fitted(mixture, norm=norm).transform([np.zeros((2, 2), np.float32)])


@pytest.mark.parametrize("mixtures", [(), (HYBRID, HEAVY)])
def test_blocks_are_the_rows_of_transform(mixtures):
    encoder = SentenceEncoder.from_fitted(VECTORS, WHITENING, mixtures)
    blocks = list(encoder.blocks(iter(SENTENCES), rows=128))
    assert [len(block) for block in blocks] == [128, 128, 44]
    assert_allclose(np.concatenate(blocks), encoder.transform(SENTENCES), atol=1e-6)


def test_forgetting_words_changes_nothing(monkeypatch):
    encoder = SentenceEncoder.from_fitted(VECTORS, WHITENING, (HYBRID,))
    expected = encoder.transform(SENTENCES)
    monkeypatch.setattr(module, "MOST_REMEMBERED_BYTES", 2000)
    forgetful = SentenceEncoder.from_fitted(VECTORS, WHITENING, (HYBRID,))
    assert_allclose(np.concatenate(list(forgetful.blocks(SENTENCES, rows=40))), expected, atol=1e-6)


def test_unknown_words_are_left_out_and_listed():
    encoder = SentenceEncoder.from_fitted(VECTORS, WHITENING, (HYBRID,))
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
    monkeypatch.setattr(
        lookup_module, "tokenize", lambda sentence: seen.append(sentence) or tokenize(sentence)
    )
    found, bags = SentenceVectors(VECTORS, None, [HYBRID._parameters]).encode(sentences)
    assert seen == sentences
    assert bags.out_of_vocabulary == [["zzz", "zzz"], [], ["zzz"], []]
    assert bags.empty.tolist() == [2]
    assert sum(map(len, bags.tokens)) == 8
    assert_array_equal(found.any(axis=1), [True, True, False, True])


@pytest.mark.parametrize("most", [1, 3, 1000])
def test_a_full_lookup_forgets_and_finds_the_same(monkeypatch, most):
    sentences = [*SENTENCES[:20], "snow-covered zzz", "zzz-covered snow-zzz", "2 grey john"]
    expected = WordLookup(VECTORS.words).find(sentences)
    monkeypatch.setattr(lookup_module, "MOST_REMEMBERED_TOKENS", most)
    lookup = WordLookup(VECTORS.words)
    for _ in range(2):
        found = lookup.find(sentences)
        assert_array_equal(found.rows, expected.rows)
        assert found.out_of_vocabulary == expected.out_of_vocabulary
    assert [VECTORS.words[row] for row in lookup["snow-covered"]] == ["snow", "covered"]
    assert lookup["yyy"] == ()


def test_a_second_fit_equals_the_first_of_a_new_encoder():
    mixture = GaussianMixture(3, random_state=0, max_iter=5, tol=0)
    used = SentenceEncoder(VECTORS, Whitening("pca"), [mixture]).fit(SENTENCES)
    used.transform(SENTENCES)
    other = VECTORS[::-1]
    used.set_params(vectors=other, mixtures=[LaplacianMixture(2, random_state=0)], stop_words=["snow"])
    used.fit(SENTENCES[:50])
    new = SentenceEncoder(
        other, Whitening("pca"), [LaplacianMixture(2, random_state=0)], stop_words=["snow"]
    ).fit(SENTENCES[:50])
    for sentences in (SENTENCES, ["snow-covered two"]):
        assert_array_equal(used.transform(sentences), new.transform(sentences))
    assert used.n_features == new.n_features


@pytest.mark.parametrize("weights", [None, np.arange(300) % 3])
def test_fit_fits_clones_to_the_words_of_the_sentences(weights):
    mixture = GaussianMixture(3, random_state=0, max_iter=5, tol=0)
    encoder = SentenceEncoder(VECTORS, Whitening("pca"), mixture, stop_words=["worda"])
    with pytest.raises(NotFittedError):
        encoder.transform(SENTENCES)
    found = encoder.fit_transform(iter(SENTENCES), sample_weight=weights)
    words = sorted({word for sentence in SENTENCES for word in tokenize(sentence)}, key=VECTORS.words.index)
    whitening = Whitening("pca").fit(np.stack([VECTORS[word] for word in words]))
    times = Counter()
    for sentence, weight in zip(SENTENCES, np.ones(300) if weights is None else weights):
        for word in tokenize(sentence):
            times[word] += weight
    white = whitening.transform(np.stack([VECTORS[word] for word in words])).astype(np.float32)
    expected = clone(mixture).fit(white, sample_weight=[times[word] for word in words])
    assert_allclose(encoder.mixtures_[0].locations_, expected.locations_, atol=1e-5)
    assert_array_equal(found, encoder.transform(SENTENCES))
    assert_allclose(
        found, SentenceEncoder.from_fitted(VECTORS, whitening, [expected]).transform(SENTENCES), atol=1e-4
    )
    assert not hasattr(mixture, "weights_")
    with pytest.raises(FishermixError):
        encoder.fit(["zzz yyy"])
    with refuses("wrong_shape"):
        encoder.fit(SENTENCES, sample_weight=[1.0])
    wrong = np.ones(len(SENTENCES))
    wrong[2] = -1
    with refuses("out_of_range", sentence=2):
        encoder.fit(SENTENCES, sample_weight=wrong)


@pytest.mark.slow
def test_whitening_and_mixture_are_tuned_in_a_pipeline():
    labels = SentenceEncoder(VECTORS).transform(SENTENCES)[:, 0] > 0
    encoder = SentenceEncoder(VECTORS, Whitening("pca"), GaussianMixture(2, random_state=0, tol=0.1))
    pipeline = make_pipeline(encoder, LogisticRegression())
    grid = {
        "sentenceencoder__whitening__n_components": [1, 6],
        "sentenceencoder__mixtures__n_components": [1, 2],
    }
    search = GridSearchCV(pipeline, grid, cv=3, error_score="raise").fit(SENTENCES, labels)
    assert search.best_params_["sentenceencoder__whitening__n_components"] == 6
    assert (
        search.best_estimator_[0].n_features
        == 2 * 6 * search.best_params_["sentenceencoder__mixtures__n_components"]
    )


def test_what_happens_to_the_given_parts_does_not_change_a_fitted_encoder():
    whitening, mixture = Whitening("pca").fit(VECTORS.vectors), mixture_of(Gaussian(), Laplace())
    encoder = SentenceEncoder.from_fitted(VECTORS, whitening, [mixture])
    expected = encoder.transform(SENTENCES)
    whitening.fit(VECTORS.vectors * 3)
    mixture.locations_ += 1
    encoder.set_params(power=0.5)  # so that nothing is left of the first call
    assert_array_equal(encoder.transform(SENTENCES), expected)
    for unfitted in ((Whitening(), ()), (None, GaussianMixture(2))):
        with pytest.raises(NotFittedError):
            SentenceEncoder.from_fitted(VECTORS, *unfitted)


@pytest.mark.parametrize("mixtures", [(), (mixture_of(Gaussian(), Laplace(), D=2),)])
def test_a_whitening_may_reduce_the_dimensions(mixtures):
    whitening = Whitening("pca", n_components=2).fit(VECTORS.vectors)
    encoder = SentenceEncoder.from_fitted(VECTORS, whitening, mixtures)
    found = encoder.transform(SENTENCES)
    sets = [whitening.transform(np.stack([VECTORS[word] for word in tokenize(s)])) for s in SENTENCES]
    if mixtures:
        expected = FisherEncoder.from_fitted(mixtures[0]).transform(sets)
    else:
        expected = [members.mean(axis=0) for members in sets]
    assert_allclose(found, expected, atol=2e-4)
    assert len(encoder.get_feature_names_out()) == found.shape[1] == encoder.n_features


def test_the_plain_object_gives_the_bits_of_the_estimator():
    encoder = SentenceEncoder.from_fitted(VECTORS, WHITENING, [HYBRID, HEAVY], power=0.7, stop_words=["snow"])
    plain = SentenceVectors(
        VECTORS, WHITENING.whitening_, [HYBRID._parameters, HEAVY._parameters], 0.7, "l2", ["snow"]
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
    encoder = SentenceEncoder.from_fitted(VECTORS, WHITENING, (HYBRID,))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert encoder.transform([]).shape == (0, 60)
    for wrong in ("a dog", b"a dog", None):
        with refuses("wrong_parameter"):
            encoder.transform(wrong)
    with refuses("wrong_shape"):
        SentenceEncoder.from_fitted(WordVectors(["a"], np.ones((1, 3))), None, (HYBRID,)).transform(["a"])


@pytest.mark.parametrize("wrong", [None, b"dog", float("nan"), ["a", b"dog"], [["a", "dog"]], 3])
def test_what_is_no_sentence_is_named(wrong):
    encoder = SentenceEncoder.from_fitted(VECTORS, WHITENING, (HYBRID,))
    for use in (encoder.transform, encoder.lookup.find, lambda sentences: list(encoder.blocks(sentences))):
        with refuses("wrong_parameter"):
            use([WORDS[0], wrong])


def test_an_iterator_of_sentences():
    encoder = SentenceEncoder.from_fitted(VECTORS, WHITENING, (HYBRID,))
    assert_array_equal(encoder.transform(iter(SENTENCES)), encoder.transform(SENTENCES))


@pytest.mark.parametrize(
    ("parameters", "code"),
    [
        ({"mixtures": None}, "wrong_parameter"),
        ({"mixtures": "hybrid"}, "wrong_parameter"),
        ({"mixtures": [HYBRID, TheirMixture(2)]}, "wrong_parameter"),
        ({"mixtures": [HYBRID, mixture_of(Gaussian(), D=3)]}, "wrong_shape"),
        ({"vectors": {"dog": [1.0]}}, "wrong_parameter"),
        ({"stop_words": "english"}, "wrong_parameter"),
    ],
)
def test_parts_that_do_not_do_are_refused(parameters, code):
    with refuses(code):
        SentenceEncoder.from_fitted(**{"vectors": VECTORS, **parameters}).transform(SENTENCES)
    if code != "wrong_shape":
        with refuses(code):
            SentenceEncoder(**{"vectors": VECTORS, **parameters}).fit(SENTENCES).transform(SENTENCES)


@pytest.mark.parametrize("norm", ["intra", "max", True])
def test_an_unknown_normalization_is_refused(norm):
    with refuses("wrong_parameter"):
        SentenceEncoder.from_fitted(VECTORS, WHITENING, HYBRID, norm=norm).transform(SENTENCES)
    with refuses("wrong_parameter"):
        SentenceEncoder(VECTORS, WHITENING, HYBRID, norm=norm).fit(SENTENCES)


def test_a_clone_is_fitted_again_and_frozen_parts_stay():
    encoder = SentenceEncoder.from_fitted(VECTORS, WHITENING, [HYBRID], power=0.7, stop_words=["the"])
    expected = encoder.transform(SENTENCES)
    twin = clone(make_pipeline(encoder))[0]
    assert twin is not encoder
    assert twin.vectors is encoder.vectors
    with pytest.raises(NotFittedError):
        twin.transform(SENTENCES)
    assert_array_equal(twin.fit(SENTENCES).transform(SENTENCES), expected)
    twin.set_params(power=1)
    assert not np.array_equal(twin.transform(SENTENCES), expected)
    assert_array_equal(encoder.transform(SENTENCES), expected)
    unfitted = SentenceEncoder(VECTORS, Whitening("pca"), [GaussianMixture(2, random_state=0)])
    unfitted.fit(SENTENCES)
    with pytest.raises(NotFittedError):
        clone(unfitted).transform(SENTENCES)


def test_it_goes_through_cross_validation():
    labels = SentenceEncoder(VECTORS).transform(SENTENCES)[:, 0] > 0
    pipeline = make_pipeline(SentenceEncoder.from_fitted(VECTORS, None, [HYBRID]), LogisticRegression())
    scores = cross_val_score(pipeline, SENTENCES, labels, cv=3, error_score="raise")
    assert scores.min() > 0.7  # about half of the labels are True


@pytest.mark.parametrize("stop_words", [(), ("snow",)])
def test_with_the_words_of_some_sentences_these_are_encoded_alike(stop_words):
    encoder = SentenceEncoder.from_fitted(VECTORS, WHITENING, (HYBRID,), stop_words=stop_words)
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
    names = SentenceEncoder.from_fitted(VECTORS, None, (HYBRID, HEAVY)).get_feature_names_out()
    assert len(names) == 120
    assert names[0] == "mixture_0_location_0_0"
    assert names[-1] == "mixture_1_scale_4_5"
    assert SentenceEncoder(VECTORS).get_feature_names_out()[-1] == "mean_5"


def test_threads_and_pickles_give_the_same():
    encoder = SentenceEncoder.from_fitted(VECTORS, WHITENING, (HYBRID,))
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
    encoder = SentenceEncoder.from_fitted(VECTORS, WHITENING, (HYBRID, HEAVY))
    names = encoder.get_feature_names_out()
    columns = [
        [name for part in group for name in names[part]] for group in encoder.sentence_vectors.feature_groups
    ]
    assert sorted(name for group in columns for name in group) == sorted(names)
    of_second = [[f"mixture_1_{half}_3_{d}" for half in ("location", "scale") for d in range(6)]]
    assert [group for group in columns if group[0] == "mixture_1_location_3_0"] == of_second
    assert SentenceEncoder.from_fitted(VECTORS, WHITENING, ()).sentence_vectors.feature_groups is None
