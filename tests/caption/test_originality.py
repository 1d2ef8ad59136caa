from fishermix.caption.originality import originality


def test_counts_ignore_case_and_punctuation():
    found = originality(["A dog runs.", "a dog runs", "Two cats sleep here!"], ["a Dog runs", "cats"])
    assert (found.sentences, found.distinct, found.words) == (3, 2, 7)
    assert found.new == 100 / 3
    assert found.length == 10 / 3


def test_nothing_to_compare_with_and_nothing_at_all():
    assert originality(["a dog"]).new is None
    assert originality([], ["a dog"]).as_dict() == {
        "sentences": 0,
        "new": 0.0,
        "distinct": 0,
        "words": 0,
        "length": 0.0,
    }
