"""Of many sets, the bad one is named by its number, whatever the encoder and the form of the sets."""

import numpy as np
import pytest
from fishermix import BagOfWordsEncoder, FisherEncoder, GaussianMixture, OnRows, SpatialPyramid, VLADEncoder
from refuses import refuses
from scipy.sparse import csr_array
from sklearn.cluster import KMeans
from sklearn.decomposition import PCA
from sklearn.impute import SimpleImputer
from sklearn.preprocessing import StandardScaler

BAD = 3  # the number of the set that is replaced


@pytest.fixture
def sets():
    """Six sets with positions in their last two columns; set 1 is empty."""
    rng = np.random.default_rng(0)
    return [np.hstack([rng.normal(size=(n, 3)), rng.random((n, 2))]) for n in (20, 0, 30, 25, 20, 20)]


def make_encoders():
    mixture = GaussianMixture(2, random_state=0)
    return [
        FisherEncoder(mixture),
        VLADEncoder(KMeans(2, n_init=1, random_state=0)),
        BagOfWordsEncoder(mixture),
        SpatialPyramid(FisherEncoder(mixture)),
        OnRows(PCA(2)),
    ]


def give_encoder_and_methods(sets):
    """An encoder of every class, with its `fit`, its `fit_transform` and its `transform`."""
    for encoder in make_encoders():
        yield encoder.fit
        yield encoder.fit_transform
        yield encoder.fit(sets).transform


@pytest.mark.filterwarnings("ignore:1 of 6 sets are empty")
@pytest.mark.parametrize(
    ("bad", "code"),
    [
        (np.ones((4, 2)), "wrong_shape"),
        (np.ones(5), "wrong_shape"),
        (np.ones((2, 2, 5)), "wrong_shape"),
        ([[1.0, 2.0, 3.0, 4.0, 5.0], [1.0]], "wrong_shape"),
        (None, "wrong_shape"),
        (csr_array(np.ones((4, 5))), "wrong_form"),
    ],
    ids=["width", "1-D", "3-D", "ragged", "None", "sparse"],
)
def test_a_set_that_is_no_table_of_the_right_width_is_named(sets, bad, code):
    given = [*sets[:BAD], bad, *sets[BAD + 1 :]]
    for use in give_encoder_and_methods(sets):
        with refuses(code, set=BAD):
            use(given)


def test_the_width_of_the_fit_decides_if_the_first_set_is_the_wrong_one(sets):
    fitted = FisherEncoder(GaussianMixture(2, random_state=0)).fit(sets)
    with refuses("wrong_shape", set=0):
        fitted.transform([np.ones((4, 2)), *sets])


@pytest.mark.filterwarnings("ignore:. of 6 sets are empty")
@pytest.mark.parametrize("value", [np.nan, -np.inf])
@pytest.mark.parametrize("form", ["list", "iterator", "pair", "3-D"])
def test_a_set_with_nan_or_infinity_is_named(sets, value, form):
    if form == "3-D":
        sets = [np.resize(sets[0], (20, 5)) for _ in sets]
    given = [rows.copy() for rows in sets]
    given[BAD][7, 1] = value
    forms = {
        "list": lambda: given,
        "iterator": lambda: iter(given),
        "pair": lambda: (np.concatenate(given), np.cumsum([0, *map(len, given)])),
        "3-D": lambda: np.stack(given),
    }
    for use in give_encoder_and_methods(sets):
        with refuses("not_finite", set=BAD, row=7):
            use(forms[form]())


def test_each_row_of_one_array_is_a_set(sets):
    rows = np.vstack(sets)
    rows[40] = np.nan
    with refuses("not_finite", set=40, row=0):
        FisherEncoder(GaussianMixture(2)).fit(rows)


def test_other_errors_of_a_transformer_are_its_own(sets):
    given = [np.where(rows > 2, np.nan, rows) for rows in sets]
    with pytest.raises(ValueError, match="strategy"):
        OnRows(SimpleImputer(strategy="none")).fit(given)


def test_sets_that_are_all_empty_cannot_be_fitted():
    for encoder in make_encoders()[:-1]:
        with refuses("too_few"):
            encoder.fit([np.zeros((0, 5))] * 3)


def test_the_warning_of_empty_sets_names_the_first(sets):
    with pytest.warns(match="1 of 6 sets are empty, the first is set 1"):
        FisherEncoder(GaussianMixture(2, random_state=0)).fit(sets).transform(sets)


def test_a_position_out_of_the_image_is_named(sets):
    sets[BAD][7, -1] = 1.5
    with refuses("out_of_range", set=BAD, row=7):
        SpatialPyramid(FisherEncoder(GaussianMixture(2))).fit(sets)


def list_fits():
    return [encoder.fit for encoder in (*make_encoders()[:-1], OnRows(StandardScaler()))]


@pytest.mark.parametrize("weight", [-1.0, np.nan, np.inf])
def test_a_set_with_an_impossible_weight_is_named(sets, weight):
    for fit in list_fits():
        with refuses("out_of_range", set=BAD):
            fit(sets, sample_weight=[1, 1, 1, weight, 1, 1])


@pytest.mark.parametrize("weights", [np.ones(5), np.ones(115), 2.0, np.ones((6, 1))], ids=np.shape)
def test_there_is_one_weight_for_each_set(sets, weights):
    for fit in list_fits():
        with refuses("wrong_shape") as raised:
            fit(sets, sample_weight=weights)
        assert "6 sets" in str(raised.value)


@pytest.mark.parametrize("weights", [np.zeros(6), [0, 1, 0, 0, 0, 0]], ids=["all", "all with rows"])
def test_a_set_with_rows_needs_a_weight(sets, weights):
    for fit in list_fits():
        with refuses("out_of_range"):
            fit(sets, sample_weight=weights)


def test_no_weights_are_equal_weights(sets):
    expected = OnRows(StandardScaler()).fit(sets).transformer_.mean_
    found = OnRows(StandardScaler()).fit(sets, sample_weight=None).transformer_.mean_
    np.testing.assert_array_equal(found, expected)
