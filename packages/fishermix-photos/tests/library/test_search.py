"""What a search answers: scores, probabilities over all folders, filters, order, pages."""

import os
from datetime import datetime

import numpy as np
import pytest
from fishermix_photos.index.filters import BadFilter, Filter
from fishermix_photos.library import PhotoLibrary
from fishermix_photos.model.calibration import Calibration
from fishermix_photos.model.transformer import SentenceTransformer
from fishermix_photos.search.calibration import LIKELY, MAYBE, find_band
from fishermix_photos.search.results import FacetCount, Query, UnknownPhoto
from fishermix_photos.search.terms import parse_query
from fishermix_photos.search.vectors import UnknownTerm
from PIL import Image
from refuses import refuses
from tiny_model import NAMES, CrowdedModel, TinyModel, TrainingScores, paint

STEEP = Calibration(
    model_key="tiny", intercept=-3.6, score=9.2, deviations=0.01, log_photos=-0.3, log_words=0.0
)


class CalibratedModel(TinyModel):
    """Its probabilities depend on the scores of all photos that are searched."""

    calibration = STEEP
    hubness = TrainingScores(-0.3, 0.3, 50)


@pytest.fixture
def album(tmp_path):
    """Two folders of different size, and a library of both."""
    for number in range(12):
        paint(tmp_path / "A" / f"{number}.png", *NAMES[: number % 7 + 1], size=(48, 32 + number))
    for number in range(5):
        paint(tmp_path / "B" / "in" / f"{number}.png", "red", *NAMES[1 : number + 1], size=(60, 40 + number))
    with PhotoLibrary(tmp_path / "library", CalibratedModel()) as album:
        album.update([tmp_path / "A", tmp_path / "B"])
        yield album


def ask(library, line, **options):
    """All files: near copies are merged only where a test asks for it."""
    return library.search(Query(parse_query(line), **{"merge_copies": False, **options}))


def test_a_search_finds_the_photo_of_its_words(library, photos, search):
    library.update([photos])
    for name in NAMES:
        best = library.search(name).photos[0]
        assert best.relative == f"{name}.png"
        assert best.score == pytest.approx(1, abs=1e-6)
    assert search("red white blue")[0] == "sub/flag.png"
    assert library.search("red").photos[0].name == "photos/red.png"


def test_a_search_before_any_update_finds_nothing(library):
    for options in ({}, {"min_probability": MAYBE}, {"min_score": 0.1}, {"sort": "date"}):
        assert ask(library, "red", **options).photos == ()
    assert library.browse(Query()).total == 0
    assert library.facets().years == ()
    assert library.topics() == library.duplicates() == []


def test_sentences_are_scored_with_hubness_and_photos_by_the_cosine(photos, tmp_path):
    model = CrowdedModel()
    with PhotoLibrary(tmp_path / "library", model) as library:
        library.update([photos])
        everything = {photo.relative: photo.id for photo in library.browse(Query(n=100)).photos}
        points = {name: library._point(photo) for name, photo in everything.items()}
        scores = (
            model.joint_space.csls_right(model.encode_text(["red blue"]))
            @ model.joint_space.csls_left(np.stack(list(points.values()))).T
        )
        expected = {name: pytest.approx(score, abs=1e-6) for name, score in zip(points, scores[0].tolist())}
        found = [photo.relative for photo in ask(library, "red blue", n=100).photos]
        assert {photo.relative: photo.score for photo in ask(library, "red blue", n=100).photos} == expected
        # By the cosine red.png and blue.png are as near; red is where the hub is.
        assert found.index("blue.png") < found.index("red.png")
        alike = ask(library, f"photo:{everything['red.png']}", n=100).photos
        assert {p.relative: p.score for p in alike} == {
            name: pytest.approx(point[0], abs=1e-6) for name, point in points.items()
        }
        similar = library.similar(everything["red.png"], 3).photos
        assert [p.id for p in similar] == [p.id for p in alike if p.relative != "red.png"][:3]
        assert library.similar(points["red.png"], 1).photos[0].relative == "red.png"


def test_probabilities_are_those_of_all_photos_searched_together(album, tmp_path):
    """The same photo has one probability, whichever folder it is in, and bands do not interleave."""
    everything = ask(album, "red", n=100).photos
    assert len(everything) == 17
    chances = [photo.probability for photo in everything]
    assert chances == sorted(chances, reverse=True)
    assert [photo.band for photo in everything] == [find_band(chance) for chance in chances]
    assert {"likely", "maybe", "unlikely"} == {photo.band for photo in everything}
    both = ask(album, "red", n=100, folders=(tmp_path / "A", tmp_path / "B")).photos
    assert both == everything
    alone = ask(album, "red", n=100, folders=(tmp_path / "B",)).photos
    assert [photo.id for photo in alone] == [photo.id for photo in everything if "/B/" in photo.path]
    assert [photo.probability for photo in alone] != [p.probability for p in everything if "/B/" in p.path]
    # A filter and a page choose among the photos; they do not change what a score means.
    known = {photo.id: photo.probability for photo in everything}
    for photo in ask(album, "red", n=3, offset=2, filter=Filter(folder="B")).photos:
        assert photo.probability == known[photo.id]


def test_thresholds(album):
    everything = ask(album, "red", n=100).photos
    likely = ask(album, "red", n=100, min_probability=LIKELY).photos
    assert likely == tuple(photo for photo in everything if photo.probability >= LIKELY)
    assert 0 < len(likely) < len(everything)
    assert ask(album, "red", n=100, min_score=0.6).photos == tuple(p for p in everything if p.score >= 0.6)
    # A query of photos has no probabilities: what stands out is shown.
    line = f"photo:{everything[0].id}"
    assert 0 < len(ask(album, line, n=100, min_probability=MAYBE).photos) < len(everything)
    assert ask(album, line, n=1).photos[0].probability is None


def test_near_copies_take_one_place(tmp_path):
    """Copies in another size or format, and equal files, become `similar` of the best; a page stays full."""
    rng = np.random.default_rng(0)
    small = rng.integers(0, 255, (24, 32), np.uint8)
    reds = np.stack([np.full_like(small, 220), small // 3, small // 3], axis=2)
    picture = Image.fromarray(reds).resize((240, 180), Image.Resampling.BICUBIC)
    other = Image.fromarray(reds[::-1, ::-1].copy()).resize((240, 180), Image.Resampling.BICUBIC)
    folder = tmp_path / "photos"
    folder.mkdir()
    picture.save(folder / "a.png")
    (folder / "b.png").write_bytes((folder / "a.png").read_bytes())
    picture.resize((160, 120)).save(folder / "c.jpg", quality=80)
    other.save(folder / "d.png")
    paint(folder / "e.png", "blue")
    with PhotoLibrary(tmp_path / "library", TinyModel()) as library:
        library.update([folder])
        every = ask(library, "red", n=10).photos
        merged = library.search(Query(parse_query("red"))).photos  # as in a program, without options
        assert len(every) == 5
        assert not any(photo.similar for photo in every)
        groups = [{photo.relative, *(copy.relative for copy in photo.similar)} for photo in merged]
        assert sorted(map(sorted, groups)) == [["a.png", "b.png", "c.jpg"], ["d.png"], ["e.png"]]
        page = ask(library, "red", n=2, merge_copies=True)
        assert [photo.id for photo in page.photos] == [photo.id for photo in merged[:2]]
        assert page.more
        assert ask(library, "red", n=2, offset=2, merge_copies=True).photos == merged[2:]


def blur(rng):
    """A picture of large gray patches, unlike any other."""
    patches = Image.fromarray(rng.integers(0, 255, (24, 32), np.uint8))
    return patches.resize((240, 180), Image.Resampling.BICUBIC).convert("RGB")


@pytest.mark.parametrize("copies", [[2] * 11 + [1] * 19, [60] + [1] * 29, [1] * 25 + [300], [2] * 20])
def test_copies_neither_end_the_results_nor_empty_a_page(tmp_path, copies):
    """`copies` has how often there is each picture: equal files, as a burst of near copies."""
    rng = np.random.default_rng(0)
    folder = tmp_path / "photos"
    folder.mkdir()
    for number, count in enumerate(copies):
        picture = folder / f"{number}-0.png"
        blur(rng).save(picture)
        for copy in range(1, count):
            (folder / f"{number}-{copy}.png").write_bytes(picture.read_bytes())
    with PhotoLibrary(tmp_path / "library", TinyModel()) as library:
        library.update([folder])
        found = ask(library, "grey", n=1000, merge_copies=True).photos
        assert sorted(1 + len(photo.similar) for photo in found) == sorted(copies)
        pages, offset = [], 0
        while not pages or pages[-1].more:
            pages.append(ask(library, "grey", n=10, offset=offset, merge_copies=True))
            offset += len(pages[-1].photos)
        assert [photo.id for page in pages for photo in page.photos] == [photo.id for photo in found]
        assert {len(page.photos) for page in pages[:-1]} <= {10}
        assert pages[-1].photos


def test_nothing_matches(album, library, photos):
    found = ask(album, "red", n=1)
    assert not found.nothing_matches
    found = ask(album, "grey", n=2, filter=Filter(folder="B"))
    assert found.nothing_matches
    assert len(found.photos) == 2
    by_date = ask(album, "grey", n=2, filter=Filter(folder="B"), sort="date")
    assert by_date.nothing_matches
    assert len(by_date.photos) == 2
    assert ask(album, "grey", n=2, filter=Filter(folder="B"), min_probability=MAYBE).photos == ()
    library.update([photos])
    assert not ask(library, "red - white", n=1).nothing_matches  # this model has no calibration


def test_unknown_words_are_a_guess_and_reported(album):
    found = ask(album, "red zebra", n=1)
    assert found.unknown_words == ("zebra",)
    assert found.photos[0].probability > MAYBE
    found = ask(album, "yelow red", n=1)
    assert [(note.kind, note.name, note.meaning) for note in found.notes] == [
        ("corrected", "yelow", "yellow")
    ]
    assert found.photos == ask(album, "yellow red", n=1).photos
    as_typed = ask(album, found.notes[0].suggestion, n=1)
    assert "yelow" in as_typed.unknown_words
    assert ("similar_word", "yellow") in [(note.kind, note.meaning) for note in as_typed.notes]
    with pytest.raises(UnknownTerm):
        ask(album, "zebra")


def test_subtracting_never_raises_a_probability(album):
    plain = {photo.id: photo for photo in ask(album, "red", n=100).photos}
    found = ask(album, "red - green", n=100).photos
    assert len(found) == len(plain)
    assert all(photo.probability <= plain[photo.id].probability for photo in found)
    assert any(photo.probability < plain[photo.id].probability for photo in found)
    assert [photo.score for photo in found] == sorted((photo.score for photo in found), reverse=True)
    for n in (1, 4):
        pages = [ask(album, "red - green", n=n, offset=offset).photos for offset in range(0, 17, n)]
        assert tuple(photo for page in pages for photo in page) == found
    for photo in found:
        assert album.explain("red - green", photo.id).score == pytest.approx(photo.score, abs=1e-5)


def test_what_shows_nothing_of_the_subtracted_keeps_its_score(album):
    """As kangaroos without a cage: near to cages in meaning, but not in the photo."""
    plain = {photo.id: photo for photo in ask(album, "red", n=100).photos}
    for photo in ask(album, "red - green", n=100).photos:
        if album.explain("green", photo.id).score <= 0.1:
            assert (photo.score, photo.probability) == (plain[photo.id].score, plain[photo.id].probability)


def test_the_best_of_many_are_found_if_something_is_subtracted(album, monkeypatch):
    expected = ask(album, "red - green", n=5).photos
    monkeypatch.setattr("fishermix_photos.search.nearest.FEWEST_LOOKED_AT", 2)
    assert ask(album, "red - green", n=5).photos == expected


def test_pages(album):
    everything = ask(album, "red", n=100)
    assert not everything.more
    pages = [ask(album, "red", n=5, offset=offset) for offset in range(0, 20, 5)]
    assert tuple(photo for page in pages for photo in page.photos) == everything.photos
    assert [page.more for page in pages] == [True, True, True, False]


def test_a_search_by_date_shows_what_may_be_right(album, tmp_path):
    for number, file in enumerate(sorted((tmp_path / "A").glob("*.png"))):
        os.utime(file, (1e9 + 1e7 * number,) * 2)
    album.update([tmp_path / "A"])
    found = ask(album, "red", n=100, sort="date").photos
    assert {photo.id for photo in found} == {
        p.id for p in ask(album, "red", n=100).photos if p.probability >= MAYBE
    }
    assert [photo.details.taken for photo in found] == sorted((p.details.taken for p in found), reverse=True)
    oldest = ask(album, "red", n=100, sort="oldest").photos
    assert oldest == found[::-1]
    assert ask(album, "red", n=2, offset=1, sort="date").photos == found[1:3]
    only_date = ask(album, "in 2002", n=100)
    assert only_date.total == len(only_date.photos) > 0
    assert {photo.details.taken[:4] for photo in only_date.photos} == {"2002"}
    assert [note.kind for note in only_date.notes] == ["date", "left_out"]
    with_words = ask(album, "red in 2002", n=100).photos
    assert {photo.id for photo in with_words} == {photo.id for photo in only_date.photos}
    assert ask(album, "red in 2002", n=100, filter=Filter(after="2003")).unknown_words == ("in", "2002")


@pytest.fixture
def mixed(tmp_path):
    """Two photos of 2004, one of 2005, and three that were copied in 2004 or later and have no date."""
    folder = tmp_path / "mixed"
    for name in ("IMG_20040501_120000", "IMG_20040601_120000", "IMG_20050501_120000", "a", "b", "c"):
        paint(folder / f"{name}.png", "red", "blue", size=(48, 20 + len(list(folder.glob("*"))) * 4))
    for name, year in (("a", 2004), ("b", 2020), ("c", 2021)):
        moment = datetime(year, 3, 1).timestamp()
        os.utime(folder / f"{name}.png", (moment, moment))
    with PhotoLibrary(tmp_path / "mixed library", CalibratedModel()) as library:
        library.update([folder])
        yield library


def names(results):
    return [os.path.splitext(photo.relative)[0] for photo in results.photos]


def test_photos_without_a_date_are_counted_and_offered(mixed):
    for line, rest in (("red in 2004", "red without a date"), ("2004", "without a date")):
        found = ask(mixed, line)
        assert set(names(found)) == {"IMG_20040501_120000", "IMG_20040601_120000", "a"}
        [note] = [note for note in found.notes if note.kind == "left_out"]
        assert (note.count, note.suggestion) == (2, rest)
        assert set(names(ask(mixed, note.suggestion))) == {"a", "b", "c"}
    by_option = ask(mixed, "red", filter=Filter(after="2004", before="2005")).notes
    assert [(note.kind, note.count, note.suggestion) for note in by_option] == [("left_out", 2, None)]
    assert [note.kind for note in ask(mixed, "IMG in 2004 - blue").notes].count("left_out") == 0
    assert not any(note.kind == "left_out" for note in ask(mixed, "red").notes)


def test_photos_without_a_date_come_last(mixed):
    listed = mixed.browse(Query(n=100))
    dated = ["IMG_20050501_120000", "IMG_20040601_120000", "IMG_20040501_120000"]
    assert names(listed) == [*dated, "c", "b", "a"]
    assert listed.years == (FacetCount("2005", 1), FacetCount("2004", 2), FacetCount("", 3))
    oldest = mixed.browse(Query(n=100, sort="oldest"))
    assert names(oldest) == [*dated[::-1], "a", "b", "c"]
    assert oldest.years[-1] == FacetCount("", 3)
    assert names(ask(mixed, "red", n=100, sort="date")) == names(listed)
    assert mixed.facets().years == (FacetCount("2005", 1), FacetCount("2004", 2))


def test_browsing(album):
    total = album.browse(Query(n=4))
    assert (len(total.photos), total.more, total.total) == (4, True, 17)
    names = [photo.path for photo in album.browse(Query(n=100, sort="name")).photos]
    assert names == sorted(names, key=str.lower)
    newest = album.browse(Query(n=100, sort="date")).photos
    assert album.browse(Query(n=100, sort="oldest")).photos == newest[::-1]
    assert album.browse(Query(n=5, offset=15, sort="date")).photos == newest[15:]
    assert {photo.score for photo in newest} == {None}
    inside = album.browse(Query(n=100, filter=Filter(folder="/B/in"))).photos
    assert len(inside) == 5 == len(album.browse(Query(n=100, filter=Filter(folder="in"))).photos)
    assert album.browse(Query(filter=Filter(folder="/in"))).photos == ()
    assert album.browse(Query(filter=Filter(kind="GIF"))).total == 0
    with pytest.raises(BadFilter) as caught:
        album.browse(Query(filter=Filter(after="soon")))
    assert caught.value.values["field"] == "after"
    with pytest.raises(BadFilter):
        ask(album, "red", filter=Filter(after="2020", before="2019"))


def test_facets_and_topics(album, tmp_path):
    facets = album.facets()
    inside = (FacetCount("B", 5), FacetCount("B/in", 5))
    assert facets.folders == (FacetCount("A", 12), *inside)
    assert facets.kinds == (FacetCount("PNG", 17),)
    assert facets.years == ()  # not one of them has a date of its own
    assert album.facets([tmp_path / "B"]).folders == inside
    paint(tmp_path / "A" / "new.png", "yellow", "grey")
    album.update([tmp_path / "A"])
    assert album.facets().kinds == (FacetCount("PNG", 18),)


def test_photos_by_id_and_points(album, tmp_path):
    photo = ask(album, "red", n=1).photos[0]
    known = album.photo(photo.id)
    assert (known.path, known.folder, known.score) == (photo.path, photo.folder, None)
    point = album.encode_photo(photo.path)
    np.testing.assert_allclose(point, album._point(photo.id), atol=1e-6)
    with open(photo.path, "rb") as file:
        data = file.read()
    assert album.encode_photo(data) is album.encode_photo(data)  # remembered
    assert album.annotate(point, 1, ["a red wall", "a blue wall"])[0][0] == "a red wall"
    assert album.annotate(photo.id, 1)[0][1] <= 1
    assert album.describe(photo.id).sentence.startswith("a ")
    assert album.explain("red - blue", photo.id).subtracted[0].sentence == "blue"
    for call in (album.photo, album.similar, album.annotate, album.describe):
        with pytest.raises(UnknownPhoto):
            call("0" * 16)
    for wrong in (np.zeros(5), np.zeros((1, 7)), np.full(7, np.nan)):
        with refuses("wrong_shape"):
            album.similar(wrong)
    with refuses("wrong_file"):
        album.encode_photo(b"")


def paths_of(group):
    return [photo.path for photo in group.photos]


def test_duplicates(album, tmp_path):
    original = tmp_path / "B" / "in" / "4.png"
    (tmp_path / "A" / "copy of 4.png").write_bytes(original.read_bytes())
    album.update([tmp_path / "A"])
    (group,) = [one for one in album.duplicates(exact=True) if str(original) in paths_of(one)]
    assert paths_of(group) == [str(original), str(tmp_path / "A" / "copy of 4.png")]
    assert [album.photo(photo.id).path for photo in group.photos] == paths_of(group)
    assert group.is_exact
    assert album.duplicates([tmp_path / "B"], exact=True) == []


def test_results_equal_a_full_sort(library, photos):
    library.update([photos])
    points = np.random.default_rng(0).normal(size=(5, 7)).astype(np.float32)
    vectors = {p.relative: library._point(p.id) for p in library.browse(Query(n=100)).photos}
    for point in points:
        expected = sorted(vectors, key=lambda name: -float(vectors[name] @ point))
        assert [photo.relative for photo in library.similar(point, 100).photos] == expected
        assert [photo.relative for photo in library.similar(point, 3).photos] == expected[:3]


def test_a_sentence_is_encoded_once_even_for_a_new_folder(tmp_path, monkeypatch):
    """The update checks the query before it encodes photos; the search does not encode the sentence again."""
    paint(tmp_path / "photos" / "red.png", "red")
    model, encoded = TinyModel(), []
    encode = model.encode_query
    monkeypatch.setattr(model, "encode_query", lambda text: encoded.append(text) or encode(text))
    with PhotoLibrary(tmp_path / "library", model) as library:
        query = library.prepare("red without blue")
        library.update([tmp_path / "photos"], query=query)
        assert library.search(query).photos
    assert encoded == ["red", "blue"]


def test_the_transformer_reads_a_sentence_once(tmp_path, monkeypatch):
    paint(tmp_path / "photos" / "red.png", "red")
    read = []
    run = SentenceTransformer._run
    monkeypatch.setattr(SentenceTransformer, "_run", lambda self, text: read.append(text) or run(self, text))
    with PhotoLibrary(tmp_path / "library") as library:
        query = library.prepare("a red wall")
        library.update([tmp_path / "photos"], query=query)
        assert library.search(query).photos
    assert read == ["a red wall"]
