"""What the owner knows is searched: names of folders, files and places."""

import os
from datetime import date, datetime

import pytest
from fishermix.errors import FishermixError
from fishermix_photos.index.filters import BadFilter, Filter
from fishermix_photos.index.gazetteer import open_gazetteer
from fishermix_photos.index.names import NameCounts, fold
from fishermix_photos.library import PhotoLibrary
from fishermix_photos.model.calibration import Calibration
from fishermix_photos.photos.details import date_of_folder, is_doubtful, read_details
from fishermix_photos.photos.geodesy import distance_km
from fishermix_photos.search.names import find_names
from fishermix_photos.search.notes import Note
from fishermix_photos.search.places import find_place
from fishermix_photos.search.reading import drop_photo_words, read_terms
from fishermix_photos.search.results import Query
from fishermix_photos.search.terms import parse_query, write_query
from refuses import refuses
from tiny_model import NAMES, TinyModel, paint


class CalibratedModel(TinyModel):
    """Pictures that are mostly of the color are likely, others unlikely."""

    calibration = Calibration(
        model_key="tiny", intercept=-5.0, score=10.0, deviations=0.0, log_photos=0.0, log_words=0.0
    )


@pytest.fixture
def travels(tmp_path):
    folder = tmp_path / "travels"
    for number in range(3):
        paint(folder / "2009 Peru" / f"IMG_1098{number}.png", "red", "green", size=(50 + number, 50))
    paint(folder / "2009 Peru" / "green.png", "green")
    paint(folder / "Green" / "lake.png", "green", "green", "blue")
    paint(folder / "Green" / "red roof.png", "red")
    for name in NAMES:
        paint(folder / "colors" / f"{name}.png", name, size=(40, 40))
    return folder


@pytest.fixture
def library(travels, tmp_path):
    with PhotoLibrary(tmp_path / "library", CalibratedModel()) as library:
        library.update([travels])
        yield library


def names(results):
    return [os.path.basename(photo.path) for photo in results.photos]


def test_a_name_that_the_model_does_not_know_is_a_filter(library):
    found = library.search("peru")
    assert found.total == 4
    assert {photo.relative.split("/")[0] for photo in found.photos} == {"2009 Peru"}
    assert found.notes == (Note("required", "peru", count=4, suggestion='"peru"'),)
    assert [photo.score for photo in found.photos] == [None] * 4
    best = library.search(Query(parse_query("green in peru"), merge_copies=False))
    assert names(best)[0] == "green.png"
    assert len(best.photos) == 4
    assert {note.kind for note in [*found.notes, *best.notes]} == {"required", "preferred"}


def test_a_name_in_double_quotes_is_a_word(library):
    with refuses("unknown_term"):
        library.search('"peru"')


@pytest.mark.parametrize("line", ["IMG_10981.png", "img_10981", "IMG_10981.PNG"])
def test_a_file_name_is_answered_with_the_photo(library, line):
    assert names(library.search(line)) == ["IMG_10981.png"]


def test_an_everyday_word_hides_nothing_but_its_names_come_first(library):
    found = library.search(Query(parse_query("green"), n=20, merge_copies=False))
    assert found.notes == (Note("preferred", "green", count=4),)
    assert len(found.photos) == 13
    bands = [photo.band for photo in found.photos]
    assert bands == sorted(bands, key=("likely", "maybe", "unlikely").index)
    likely = names(found)[: bands.count("likely")]
    assert set(likely[:3]) == {"green.png", "lake.png"}  # two files, and one in a folder
    assert names(found).index("red roof.png") == bands.index("unlikely")
    for n in (1, 3, 7):  # pages are parts of the same order
        pages = [
            name
            for offset in range(0, 13, n)
            for name in names(
                library.search(Query(parse_query("green"), n=n, offset=offset, merge_copies=False))
            )
        ]
        assert pages == names(found)


def test_names_are_counted_among_the_photos_that_meet_the_conditions(library):
    def notes(folder):
        return library.search(Query(parse_query("green"), filter=Filter(folder=folder))).notes

    assert notes("peru") == (Note("preferred", "green", count=1),)
    assert [note.kind for note in notes("nowhere")] == ["no_folder"]


def test_names_follow_moves_and_removals(library, travels, tmp_path):
    (travels / "2009 Peru").rename(travels / "2009 Bolivia")
    library.update([travels])
    assert library.search("bolivia").total == 4
    with pytest.raises(FishermixError):
        library.search("peru")
    assert library.verify() == []
    library.update([tmp_path])  # takes the folder over: its own name is now one of many
    assert library.search("travels").total == 13
    library.remove(tmp_path)
    assert library.verify() == []


def test_names_count_only_in_the_folders_that_are_searched(library, travels):
    with refuses("unknown_term"):
        library.search(Query(parse_query("peru"), folders=(travels / "colors",)))


def test_or_between_names_means_either(library):
    both = library.search(Query(parse_query("peru or travels"), n=100))
    assert both.total == 13
    found = library.search(Query(parse_query("green in peru or in colors"), n=100))
    assert {photo.relative.split("/")[0] for photo in found.photos} == {"2009 Peru", "colors"}
    assert found.notes[0] == Note(
        "required", "peru or colors", count=11, suggestion='"green in peru or in colors"'
    )
    assert library.search("peru colors").total == 0  # both names
    assert library.search("peru, colors").total == 0
    three = library.search(Query(parse_query("red in peru, img or colors"), n=100))
    assert [note.name for note in three.notes if note.kind == "required"] == ["peru or img or colors"]


def test_or_between_a_name_and_an_everyday_word_that_is_a_name_means_either(library):
    """ "green" is a folder and two files, but also a word that the model knows: alone it hides nothing."""
    for line in ("peru or green", "green or peru", "either in peru or in green"):
        found = library.search(Query(parse_query(line), n=100))
        assert found.total == 7
        assert len(found.photos) == 7


def test_all_words_of_a_name_belong_together():
    known = {"new york": NameCounts(places=5), "new": NameCounts(folders=9), "york": NameCounts(places=5)}

    def count(phrases):
        return {phrase: known.get(phrase, NameCounts()) for phrase in phrases}

    found = find_names(parse_query("red in new york"), count, TinyModel)
    assert (found.required, [term.value for term in found.terms]) == (("new york",), ["red"])
    assert find_names(parse_query('"new york"'), count, TinyModel).required == ()
    assert find_names(parse_query("red - york"), count, TinyModel).required == ()
    every = find_names(parse_query("2 dogs"), lambda names: dict.fromkeys(names, NameCounts(1)), TinyModel)
    assert every.required == ("dogs",)


def test_folded_names():
    assert fold("São_Paulo-2009Trip/IMG_001.JPG") == "sao paulo 2009 trip img 001 jpg"
    assert fold(os.fsdecode(b"\xff caf\xc3\xa9")) == "cafe"


def test_a_suggestion_has_its_query(library):
    notes = library.search("yelow blue - red").notes
    assert notes[0] == Note("corrected", "yelow", "yellow", suggestion='"yelow" blue - red')
    notes = library.search(notes[0].suggestion).notes
    assert notes[-1] == Note("similar_word", "yelow", "yellow", suggestion="yellow blue - red")


def test_a_name_is_no_typing_mistake(library, travels):
    paint(travels / "colors" / "redd.png", "blue", size=(40, 44))
    library.update([travels])
    assert not any(note.kind == "corrected" for note in library.search("redd").notes)


def test_a_query_with_a_name_is_explained_as_it_is_searched(library):
    line = "green in peru"
    best = library.search(line).photos[0]
    found = library.explain(line, best.id)
    assert [part.word for part in found.words] == ["green"]
    assert found.score == pytest.approx(best.score, abs=1e-5)


def test_a_corrected_query_is_explained_as_it_is_searched(library):
    best = library.search("yelow").photos[0]
    found = library.explain("yelow", best.id)
    assert ([part.word for part in found.words], found.out_of_vocabulary) == (["yellow"], [])
    assert found.score == pytest.approx(best.score, abs=1e-5)
    for line in ("beach - people", '2:"a dog" + photo:00ff', "0.5:red - 3:blue"):
        assert parse_query(write_query(parse_query(line))) == parse_query(line)


# Places


@pytest.mark.parametrize(
    ("point", "name"),
    [
        ((-12.1211, -77.0297), "Lima, Peru"),  # Miraflores
        ((-37.8182, 144.9341), "Melbourne, Australia"),
        ((48.8049, 2.1204), "Versailles, France"),
        ((37.5665, 126.978), "Seoul, South Korea"),
        ((25.5, 0.5), "Algeria"),
        ((-30.0, -110.0), None),
    ],
)
def test_places_have_names(point, name):
    found = open_gazetteer().find(*point)
    assert (found.name if found else None) == name


def test_the_nearest_city_is_the_nearest_on_the_sphere():
    gazetteer = open_gazetteer()
    for point in ((65.0, 179.5), (-17.5, -179.9), (78.2, 15.6), (10.0, 10.0)):
        exact = min(gazetteer.cities, key=lambda city: distance_km(*point, city.latitude, city.longitude))
        found = gazetteer.find(*point)
        if found is not None and found.region:
            assert exact.city in f"{found.name}, {found.region}"
        else:
            assert distance_km(*point, exact.latitude, exact.longitude) > 100


def test_cities_by_name():
    gazetteer = open_gazetteer()
    assert gazetteer.find_city("paris")[0] == "Paris, France"
    assert gazetteer.find_city("Paris, Texas") == ("Paris, United States", 33.66094, -95.55551)
    assert gazetteer.find_city("são paulo") == gazetteer.find_city("Sao Paulo")
    with pytest.raises(BadFilter):
        gazetteer.find_city("nowhere at all")


@pytest.mark.parametrize(
    ("near", "places", "note"),
    [
        ("Peru", [], Note("country", "Peru", "Peru")),  # not Peru in Indiana
        ("germany", [("Lima, Peru", -12.0, -77.0)], Note("country", "germany", "Germany")),
        (
            "Peru",
            [("Peru, United States", 40.75, -86.07)],
            Note("near", "Peru, United States", "25"),
        ),
        ("Peru,5km", [], Note("near", "Peru, United States", "5")),
    ],
)
def test_a_country_is_known_without_a_photo_of_it(near, places, note):
    assert find_place(Filter(near=near), places)[1] == note


def test_a_name_and_a_place_or_a_date_are_counted_together(tmp_path):
    for number, year in enumerate((2004, 2004, 2005)):
        paint(tmp_path / "in" / f"IMG_{year}0501_12000{number} xyzzy.png", "red", size=(40 + number, 40))
    with PhotoLibrary(tmp_path / "library", CalibratedModel()) as library:
        library.update([tmp_path / "in"])
        near = library.search(Query(parse_query("xyzzy"), filter=Filter(near="Lima"))).notes
        assert [(note.kind, note.count) for note in near] == [("required", 0), ("no_coordinates", 3)]
        dated = library.search("red xyzzy in 2004").notes
        assert [note.count for note in dated if note.kind == "required"] == [2]


def test_an_unknown_place_is_a_mistake(library):
    with refuses("bad_filter"):
        library.browse(Query(filter=Filter(near="Nowhereville")))


# Dates


@pytest.mark.parametrize(
    ("name", "day"),
    [
        ("2001-10 United States", "2001-10"),
        ("2005", "2005"),
        ("Italy 2005", "2005"),
        ("2019_07_14 hike", "2019-07-14"),
        ("1899 paintings", None),
        ("2999", None),
        ("wallpapers 2000px", None),
        ("2001-02-31", None),
    ],
)
def test_dates_of_folders(name, day):
    assert date_of_folder(name) == day


def test_folders_stand_for_a_missing_date(tmp_path):
    path = paint(tmp_path / "2001-10 United States" / "day 2" / "a.png", "red")
    assert read_details(path, tmp_path).taken == "2001-10-01T00:00:00"
    assert read_details(path, tmp_path).taken_from == "folder"
    assert read_details(path, path.parent).taken_from == "file"  # the library does not have the folder above
    inside = datetime(2001, 10, 20, 8, 30).timestamp()
    os.utime(path, (inside, inside))
    assert (read_details(path, tmp_path).taken, read_details(path, tmp_path).taken_from) == (
        "2001-10-20T08:30:00",
        "file",
    )


def test_doubtful_dates_are_at_the_end_of_the_timeline(tmp_path):
    for name, year in (("old", 1980), ("new", 2019), ("future", 2037), ("older", 2003)):
        path = paint(tmp_path / "photos" / f"{name}.png", "red", size=(40, 40 + year % 100))
        moment = datetime(year, 5, 6).timestamp()
        os.utime(path, (moment, moment))
    with PhotoLibrary(tmp_path / "library", TinyModel()) as library:
        library.update([tmp_path / "photos"])
        assert names(library.browse(Query()))[:2] == ["new.png", "older.png"]
        assert names(library.browse(Query(sort="oldest")))[:2] == ["older.png", "new.png"]
        assert names(library.search("1980")) == ["old.png"]
    assert is_doubtful("1989-12-31")
    assert is_doubtful(None)
    assert not is_doubtful("1990-01-01T00:00:00")
    assert is_doubtful("2020-01-03T00:00:00", now=datetime(2020, 1, 1))


@pytest.mark.parametrize(
    ("text", "rest"),
    [
        ("photos of dogs", "dogs"),
        ("show me pictures of a red car", "a red car"),
        ("a picture on the wall", "a picture on the wall"),
        ("picture frames", "picture frames"),
        ("photos", ""),
    ],
)
def test_words_about_photos_carry_no_content(text, rest):
    assert drop_photo_words(text) == rest


def test_a_query_that_is_only_a_date_has_no_terms():
    for line in ("photos from january 2005", "january 2005", "all my photos of last year"):
        reading = read_terms(parse_query(line), today=date(2006, 3, 1))
        assert (reading.terms, reading.filter.after) == ((), "2005-01-01")
    assert [term.value for term in read_terms(parse_query("photos")).terms] == ["photos"]
