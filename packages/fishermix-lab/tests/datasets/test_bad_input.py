"""Broken, incomplete and hostile data sets: each is refused, or mended, with a message that helps."""

import json
import logging

import pytest
from fishermix.errors import FishermixError
from fishermix_lab.datasets.readers import READERS, open_dataset, parse_image_name
from refuses import refuses


def folder_with(tmp_path, text, file="captions.csv", photos=("a.jpg", "b.jpg")):
    for photo in photos:
        (tmp_path / photo).write_bytes(b"")
    (tmp_path / file).write_bytes(text if isinstance(text, bytes) else text.encode())
    return f"folder:{tmp_path}"


@pytest.mark.parametrize(
    "spec", ["", "flickr8k", "flickr8k:", "flickr9k:DIR", "/some/folder", "karpathy:a.json", "karpathy:x:y"]
)
def test_what_is_not_a_data_set_name(spec):
    with refuses("wrong_parameter"):
        open_dataset(spec)


@pytest.mark.parametrize("kind", READERS)
def test_a_missing_file_is_named_with_the_place_and_the_source(tmp_path, kind):
    with refuses("not_found") as failure:
        open_dataset(f"{kind}:{tmp_path}")
    assert str(tmp_path) in str(failure.value)
    assert any(hint in str(failure.value) for hint in ("search for", "cocodataset.org", "Write captions.csv"))
    with refuses("not_found"):
        open_dataset(f"{kind}:{tmp_path / 'nowhere'}")


def test_missing_photo_folders_and_karpathy_files(tmp_path):
    (tmp_path / "results_20130124.token").write_text("a.jpg#0\tx\n")
    with refuses("not_found"):
        open_dataset(f"flickr30k:{tmp_path}")
    with refuses("not_found"):
        open_dataset(f"karpathy:{tmp_path / 'none.json'}:{tmp_path}")


HOSTILE = [
    "../../etc/passwd",
    "a/../../x.jpg",
    "/etc/passwd",
    "C:\\Windows\\x.jpg",
    "C:x.jpg",
    "..\\x.jpg",
    "\\\\host\\share\\x.jpg",
    "a\0.jpg",
    "",
    ".",
    "..",
]


@pytest.mark.parametrize("name", HOSTILE)
def test_names_that_lead_out_of_the_folder_are_refused(tmp_path, name):
    with refuses("wrong_file"):
        parse_image_name(name, "here")
    lines = (
        json.dumps({"image": "a.jpg", "captions": ["x"]})
        + "\n"
        + json.dumps({"image": name, "captions": ["x"]})
    )
    with refuses("wrong_file"):
        open_dataset(folder_with(tmp_path, lines, "captions.jsonl"))


@pytest.mark.parametrize("name", ["a.jpg", "sub/a.jpg", "a..b.jpg", ".hidden.jpg", "img:1.jpg", "ö ü.jpg"])
def test_ordinary_names_are_not_refused(name):
    assert parse_image_name(name, "here") == name


def test_every_reader_refuses_hostile_names(tmp_path):
    (tmp_path / "images").mkdir()
    (tmp_path / "results_20130124.token").write_text("/etc/passwd#0\tx\n")
    (tmp_path / "annotations").mkdir()
    for half in ("train2014", "val2014"):
        (tmp_path / half).mkdir()
        content = {"images": [{"id": 1, "file_name": "/etc/passwd"}], "annotations": []}
        (tmp_path / "annotations" / f"captions_{half}.json").write_text(json.dumps(content))
    image = {"filename": "x.jpg", "filepath": "../..", "split": "train", "sentences": []}
    (tmp_path / "k.json").write_text(json.dumps({"images": [image]}))
    for spec in ("flickr30k:", "coco:", f"karpathy:{tmp_path / 'k.json'}:"):
        with refuses("wrong_file"):
            open_dataset(f"{spec}{tmp_path}")


@pytest.mark.parametrize(
    ("file", "text", "message"),
    [
        ("captions.csv", b"image,caption\na.jpg,ok\nb.jpg,caf\xe9\n", r"line 3: byte 0xe9 is not UTF-8"),
        ("captions.csv", "image,caption\na.jpg,x\n".encode("utf-16"), "line 1: byte 0xff is not UTF-8"),
        ("captions.csv", "picture,caption\na.jpg,x\n", "has no column image"),
        ("captions.csv", "", "no column image and caption"),
        (
            "captions.csv",
            "image,caption\na.jpg,A dog, running\n",
            "line 2: the row does not have 2 fields",
        ),
        ("captions.csv", 'image,caption\na.jpg,"open\n', "line 2: unexpected end"),
        ("captions.csv", "image,caption,split\na.jpg,x,training\n", "unknown split 'training'"),
        ("captions.csv", "image,caption,split\na.jpg,x,train\na.jpg,y,test\n", "line 3: .* in two splits"),
        ("captions.csv", "image,caption\n", "has no captions"),
        ("captions.csv", "image,caption\na.jpg,  \n", "has no captions"),
        (
            "captions.jsonl",
            '{"image": "a.jpg", "captions": ["x"]}\n{"image": ',
            "line 2: Input data was truncated",
        ),
        ("captions.jsonl", "[" * 100_000, "line 1: Expected `object`, got `array`"),
        ("captions.jsonl", "[]", "line 1: Expected `object`, got `array`"),
        ("captions.jsonl", '{"captions": ["x"]}', "line 1: Object missing required field `image`"),
        (
            "captions.jsonl",
            '{"image": "a.jpg", "captions": "x"}',
            r"Expected `array`, got `str` - at `\$\.captions`",
        ),
        (
            "captions.jsonl",
            '{"image": "a.jpg", "captions": [1]}',
            r"Expected `str`, got `int` - at `\$\.captions\[0\]`",
        ),
        (
            "captions.jsonl",
            '{"image": "a.jpg", "captions": ["x"], "split": 1}',
            r"got `int` - at `\$\.split`",
        ),
    ],
)
def test_broken_caption_files(tmp_path, file, text, message):
    with pytest.raises(FishermixError, match=message) as failure:
        open_dataset(folder_with(tmp_path, text, file))
    assert str(tmp_path) in str(failure.value)


def test_two_caption_files_are_one_too_many(tmp_path):
    folder_with(tmp_path, "image,caption\na.jpg,x\n")
    with refuses("wrong_file"):
        open_dataset(folder_with(tmp_path, '{"image": "a.jpg", "captions": ["x"]}', "captions.jsonl"))


def test_a_token_file_with_a_broken_line(tmp_path):
    (tmp_path / "images").mkdir()
    (tmp_path / "results_20130124.token").write_text("a.jpg#0\tfine\n\nb.jpg no tab\n")
    with refuses("wrong_file"):
        open_dataset(f"flickr30k:{tmp_path}")


def test_empty_captions_and_silent_images_are_skipped(tmp_path):
    text = 'image,caption\na.jpg,A dog\na.jpg,\nb.jpg,"  "\n'
    dataset = open_dataset(folder_with(tmp_path, text))
    assert dataset.image_names == ["a.jpg"]
    assert dataset.sentences == ["A dog"]


def test_many_missing_photos_are_an_error_with_count_and_names(tmp_path):
    rows = "".join(f"{i}.jpg,caption\n" for i in range(10))
    with refuses("wrong_file"):
        open_dataset(folder_with(tmp_path, "image,caption\n" + rows, photos=["0.jpg"]))


def test_a_few_missing_photos_are_skipped_with_a_warning(tmp_path, caplog):
    rows = "".join(f"{i}.jpg,caption {i}\n" for i in range(200))
    photos = [f"{i}.jpg" for i in range(200) if i not in (5, 77)]
    with caplog.at_level(logging.WARNING, logger="fishermix"):
        dataset = open_dataset(folder_with(tmp_path, "image,caption\n" + rows, photos=photos))
    assert dataset.image_names == photos
    assert "caption 5" not in dataset.sentences
    assert "2 of the 200 photos" in caplog.text
    assert "5.jpg, 77.jpg" in caplog.text
