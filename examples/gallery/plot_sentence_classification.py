"""
Sentence classification with gensim and Fisher vectors
======================================================

From which part of SciPy does a sentence of its documentation come? gensim learns word vectors from all
docstrings, without labels. Then each sentence becomes one vector: the mean of its words, their Fisher vector,
or gensim's Doc2Vec. scikit-learn's TF-IDF, which needs no word vectors, is the baseline. How many labeled
sentences does each of them need?
"""

import importlib
import inspect
import re

import matplotlib.pyplot as plt
import numpy as np
from fishermix import GaussianMixture, SentenceEncoder, WordVectors
from fishermix.text.tokens import tokenize
from fishermix.text.whitening import Whitening
from gensim.models import Doc2Vec, Word2Vec
from gensim.models.doc2vec import TaggedDocument
from scipy.sparse import csr_array, hstack
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.model_selection import GroupShuffleSplit
from sklearn.svm import LinearSVC

TOPICS = ["interpolate", "linalg", "ndimage", "optimize", "signal", "sparse", "stats"]
OTHERS = ["numpy", "scipy.special", "scipy.spatial", "sklearn.linear_model", "sklearn.decomposition"]


def read_docstrings(module):
    """The name and the docstring of every public function and class, without the examples."""
    module = importlib.import_module(module)
    for name in getattr(module, "__all__", dir(module)):
        text = inspect.getdoc(getattr(module, name, None)) or ""
        yield name, text.partition("\nExamples\n---")[0]


def split_sentences(text):
    """Sentences of at least five words, without the markup."""
    text = re.sub(r"\(?https?:\S+|:\w+:|\.\. \w+::.*|[`*\\]|\[\d+\]_", "", text)
    found = (" ".join(part.split()) for part in re.split(r"(?<=[.!?:])\s+|\n\s*\n", text))
    return [sentence for sentence in found if len(re.findall("[A-Za-z]+", sentence)) >= 5]


sentences, topics, functions, corpus = [], [], [], []
for module in [*(f"scipy.{topic}" for topic in TOPICS), *OTHERS]:
    for name, text in read_docstrings(module):
        corpus += split_sentences(text)
        if (topic := module.removeprefix("scipy.")) in TOPICS:
            summary = re.split(r"\n[A-Z][A-Za-z ]+\n-{3,}\n", text)[0]
            for sentence in split_sentences(re.sub(rf"\b{name}\b", "this", summary)):
                if sentence not in sentences:
                    sentences.append(sentence)
                    topics.append(topic)
                    functions.append(module + name)
topics, corpus = np.array(topics), sorted(set(corpus))
print(f"{len(sentences)} labeled sentences, such as {sentences[1]!r} ({topics[1]})")
print(f"{len(corpus)} sentences without labels")

# %%
# Word vectors by gensim. `WordVectors` takes its `KeyedVectors`; files can be loaded, too.

word2vec = Word2Vec(
    [tokenize(sentence) for sentence in corpus],
    vector_size=64,
    min_count=3,
    sg=1,
    negative=10,
    epochs=10,
    seed=0,
    workers=1,
)
vectors = WordVectors(word2vec.wv)
print(f"{len(vectors)} words; next to 'matrix': {[word for word, _ in vectors.most_similar('matrix', n=4)]}")

# %%
# Sentence vectors: the mean takes one line, the Fisher vector three, and Doc2Vec three. Doc2Vec sees the
# sentences that it is tested on, without their labels. Our mixture is fitted to the whole vocabulary;
# `SentenceEncoder(vectors, Whitening("pca"), GaussianMixture(8))` in a pipeline would fit it to the words of
# the training sentences.

mean = SentenceEncoder(vectors).transform(sentences)

whitening = Whitening("pca").fit(vectors.vectors)
mixture = GaussianMixture(8, random_state=0).fit(whitening.transform(vectors.vectors))
fisher = SentenceEncoder.from_fitted(vectors, whitening, mixture).transform(sentences)

tagged = [TaggedDocument(tokenize(sentence), [i]) for i, sentence in enumerate(sentences)]
doc2vec = Doc2Vec(tagged, vector_size=64, min_count=2, epochs=40, seed=0, workers=1)
documents = doc2vec.dv.vectors / np.linalg.norm(doc2vec.dv.vectors, axis=1, keepdims=True)

# %%
# All sentences of a function are either in the training or in the test set.


def measure(encode, n_labels, n_splits=5):
    """Accuracies of a linear classifier that is trained on at most n_labels sentences per topic."""
    found = []
    for train, test in GroupShuffleSplit(n_splits, test_size=0.3, random_state=0).split(
        topics, topics, functions
    ):
        train = np.random.default_rng(0).permutation(train)
        train = np.concatenate([train[topics[train] == topic][:n_labels] for topic in TOPICS])
        x = encode(train)
        found.append(LinearSVC().fit(x[train], topics[train]).score(x[test], topics[test]))
    return 100 * np.array(found)


def count_words(train):
    """TF-IDF with the words of the training sentences."""
    return TfidfVectorizer(sublinear_tf=True).fit([sentences[i] for i in train]).transform(sentences)


def join(train):
    """TF-IDF and Fisher vectors side by side."""
    return hstack([count_words(train), csr_array(fisher)]).tocsr()


ways = {
    "TF-IDF (scikit-learn)": count_words,
    "Doc2Vec (gensim)": lambda train: documents,
    "mean of word vectors": lambda train: mean,
    "Fisher vectors, 8 components": lambda train: fisher,
    "TF-IDF and Fisher vectors": join,
}
sizes = [5, 10, 20, 40, 80, 600]
figure, axis = plt.subplots(figsize=(7, 4), layout="constrained")
for name, encode in ways.items():
    found = np.array([measure(encode, n) for n in sizes])
    axis.errorbar(
        sizes, found.mean(axis=1), found.std(axis=1) / np.sqrt(5), marker="o", capsize=3, label=name
    )
    print(f"{name:29}", *(f"{n}: {share:.1f} %" for n, share in zip(sizes, found.mean(axis=1))))
axis.set(xscale="log", xlabel="labeled sentences per topic, at most", ylabel="classified correctly (%)")
axis.set_xticks(sizes, sizes)
axis.minorticks_off()
axis.grid(alpha=0.3)
axis.legend()
plt.show()

# %%
# With few labels the mean of the word vectors is best: it has few numbers to learn. With more labels the
# Fisher vector overtakes it, because it keeps what the mean loses: which kinds of words a sentence has, and
# how they spread. With all labels it is as good as TF-IDF, and both together are better than either.
