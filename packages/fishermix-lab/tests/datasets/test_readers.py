"""Every reader on a small tree in the layout in which people hold the set, and on the real Flickr8K."""

import json

import numpy as np
import pytest
from fishermix_lab.datasets import readers
from fishermix_lab.datasets.readers import SPLITS, Protocol, open_dataset
from refuses import refuses


def touch(folder, *names):
    for parent in {(folder / name).parent for name in names}:
        parent.mkdir(parents=True, exist_ok=True)
    for name in names:
        (folder / name).touch()


def captions_of(dataset):
    found = {name: [] for name in dataset.image_names}
    for sentence, image in zip(dataset.sentences, dataset.image_of):
        found[dataset.image_names[image]].append(sentence)
    return found


def flickr8k_tree(folder, photos="Images", text="."):
    touch(folder / photos, "a.jpg", "b.jpg", "c.jpg", "d.jpg")
    lines = [
        f"{name}.jpg#{i}\tThe {name} number {i} ." for name in "abcd" for i in range(2 if name == "b" else 5)
    ]
    lines += [f"2258277193_586949ec62.jpg.1#{i}\tA ghost ." for i in range(5)]
    (folder / text).mkdir(exist_ok=True)
    (folder / text / "Flickr8k.token.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    for split, names in {"train": "a", "dev": "b", "test": "c"}.items():
        path = folder / text / f"Flickr_8k.{split}Images.txt"
        path.write_text("".join(f"{name}.jpg\n" for name in names), encoding="utf-8")


@pytest.mark.parametrize(("photos", "text"), [("Images", "."), ("Flicker8k_Dataset", "Flickr8k_text")])
def test_flickr8k(tmp_path, photos, text):
    flickr8k_tree(tmp_path, photos, text)
    dataset = open_dataset(f"flickr8k:{tmp_path}")
    assert dataset.name == "flickr8k"
    assert dataset.image_names == ["a.jpg", "b.jpg", "c.jpg", "d.jpg"]
    assert dataset.image_paths == [tmp_path / photos / name for name in dataset.image_names]
    assert dataset.splits.tolist() == ["train", "dev", "test", "train"]
    assert [len(own) for own in captions_of(dataset).values()] == [5, 2, 5, 5]
    assert captions_of(dataset)["b.jpg"] == ["The b number 0 .", "The b number 1 ."]
    assert "A ghost ." not in dataset.sentences
    assert dataset.paper_splits(3) is dataset


@pytest.mark.real
def test_the_real_flickr8k(flickr8k):
    paper = open_dataset(f"flickr8k:{flickr8k}")
    assert (len(paper), len(paper.sentences)) == (8091, 40455)
    assert paper.counts() == {"train": 6091, "dev": 1000, "test": 1000}
    assert np.bincount(paper.image_of).tolist() == [5] * 8091
    for split in ("dev", "test"):
        listed = (flickr8k / f"Flickr_8k.{split}Images.txt").read_text().split()
        assert sorted(paper.part(split).image_names) == sorted(listed)


def test_flickr30k(tmp_path):
    names = [f"{i}.jpg" for i in range(2010)]
    touch(tmp_path / "flickr30k-images", *names)
    lines = [f"{name}#{i}\tcaption {i} of {name}" for k, name in enumerate(names) for i in range(4 + k % 2)]
    (tmp_path / "results_20130124.token").write_text("\n".join(lines), encoding="utf-8")
    dataset = open_dataset(f"flickr30k:{tmp_path}")
    assert (len(dataset), len(dataset.sentences), dataset.repeats) == (2010, 9045, 5)
    assert dataset.counts() == {"train": 10, "dev": 1000, "test": 1000}
    assert captions_of(dataset)["7.jpg"][4] == "caption 4 of 7.jpg"


def pascal_captions():
    """1,000 images, of which some have four captions and some six."""
    sizes = {0: 4, 5: 4, 9: 4, 500: 6}
    return {f"2008_{i:06}.jpg": [f"s{j} of {i}" for j in range(sizes.get(i, 5))] for i in range(1000)}


@pytest.mark.slow
@pytest.mark.parametrize("by_class", [False, True])
def test_pascal1k(tmp_path, by_class):
    captions = pascal_captions()
    classes = {name: ("aeroplane", "tvmonitor")[i >= 500] for i, name in enumerate(captions)}
    touch(tmp_path / "images", *[f"{classes[name]}/{name}" if by_class else name for name in captions])
    for name, own in captions.items():
        path = tmp_path / "sentence" / classes[name] / name.replace(".jpg", ".txt")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("\n".join(own) + "\n", encoding="utf-8")
    dataset = open_dataset(f"pascal1k:{tmp_path}")
    assert captions_of(dataset) == captions
    assert (len(dataset), len(dataset.sentences), dataset.repeats) == (1000, 4998, 20)
    assert all(path.is_file() for path in dataset.image_paths)
    assert dataset.paper_splits(19).counts() == {"train": 800, "dev": 100, "test": 100}


def coco_tree(folder, n_images=6):
    (folder / "annotations").mkdir()
    expected = {}
    for half, ids in {"train2014": range(n_images - 2), "val2014": range(n_images - 2, n_images)}.items():
        images = [{"id": i, "file_name": f"COCO_{half}_{i:012}.jpg", "license": 1} for i in ids]
        touch(folder / half, *[image["file_name"] for image in images])
        annotations = [
            {"id": 10 * i + j, "image_id": i, "caption": f"caption {j}\n of {i}"}
            for j in range(5)
            for i in ids
        ]
        content = {"info": {}, "images": images, "licenses": [], "annotations": annotations}
        (folder / "annotations" / f"captions_{half}.json").write_text(json.dumps(content), encoding="utf-8")
        expected |= {
            image["file_name"]: [f"caption {j} of {image['id']}" for j in range(5)] for image in images
        }
    return expected


def test_coco(tmp_path):
    expected = coco_tree(tmp_path)
    dataset = open_dataset(f"coco:{tmp_path}")
    assert captions_of(dataset) == expected
    assert dataset.image_paths[-1] == tmp_path / "val2014" / "COCO_val2014_000000000005.jpg"
    with refuses("too_few"):
        dataset.paper_splits(0)


def test_cocos_protocol(tmp_path, monkeypatch):
    assert Protocol(dev=5000, test=5000, repeats=5) == readers.COCO_PROTOCOL
    monkeypatch.setattr(readers, "COCO_PROTOCOL", Protocol(dev=50, test=50, repeats=5))
    coco_tree(tmp_path, 120)
    dataset = open_dataset(f"coco:{tmp_path}")
    assert dataset.counts() == {"train": 20, "dev": 50, "test": 50}
    subset = dataset.sample("test", 10, seed=0)
    assert len(subset) == 10
    assert set(subset.image_names) < set(dataset.part("test").image_names)


def test_coco_skips_captions_of_unknown_images(tmp_path):
    coco_tree(tmp_path)
    path = tmp_path / "annotations" / "captions_val2014.json"
    content = json.loads(path.read_text())
    content["annotations"].append({"image_id": 999, "caption": "a stranger"})
    path.write_text(json.dumps(content))
    dataset = open_dataset(f"coco:{tmp_path}")
    assert "a stranger" not in dataset.sentences
    content["images"].append(content["images"][0])
    path.write_text(json.dumps(content))
    with refuses("wrong_file"):
        open_dataset(f"coco:{tmp_path}")


@pytest.mark.parametrize("filepath", [None, "val2014"])
def test_karpathy(tmp_path, filepath):
    images = []
    for i, split in enumerate(["train", "restval", "val", "test"]):
        sentences = [{"raw": f"Raw {j} of {i}.", "tokens": ["raw", str(j)]} for j in range(i + 1)]
        images.append({"filename": f"{i}.jpg", "split": split, "sentences": sentences, "imgid": i})
        if filepath:
            images[-1]["filepath"] = filepath
        touch(tmp_path / "photos" / (filepath or ""), f"{i}.jpg")
    del images[0]["sentences"][0]["raw"]
    file = tmp_path / "dataset_coco.json"
    file.write_text(json.dumps({"images": images, "dataset": "coco"}), encoding="utf-8")
    dataset = open_dataset(f"karpathy:{file}:{tmp_path / 'photos'}")
    assert dataset.name == "coco"
    assert dataset.splits.tolist() == ["train", "train", "dev", "test"]
    assert captions_of(dataset)["0.jpg"] == ["raw 0"]
    assert captions_of(dataset)["2.jpg"] == ["Raw 0 of 2.", "Raw 1 of 2.", "Raw 2 of 2."]


TABLES = {
    "captions.csv": 'image,caption,split\na.jpg,"A dog, running",train\nb.jpg,One cat,val\n'
    'a.jpg,"A ""dog",train\nsub/c.jpg,x,test\n',
    "captions.jsonl": '{"image": "a.jpg", "captions": ["A dog, running", "A \\"dog"], "split": "train"}\n\n'
    '{"image": "b.jpg", "captions": ["One cat"], "split": "dev"}\n'
    '{"image": "sub/c.jpg", "captions": ["x"], "split": "TEST"}',
}


@pytest.mark.parametrize("file", TABLES)
@pytest.mark.parametrize(
    "encode", [lambda t: t.encode(), lambda t: t.replace("\n", "\r\n").encode("utf-8-sig")]
)
@pytest.mark.parametrize("images", [".", "images"])
def test_folder(tmp_path, file, encode, images):
    touch(tmp_path / images, "a.jpg", "b.jpg", "sub/c.jpg")
    (tmp_path / file).write_bytes(encode(TABLES[file]))
    dataset = open_dataset(f"folder:{tmp_path}")
    assert captions_of(dataset) == {
        "a.jpg": ["A dog, running", 'A "dog'],
        "b.jpg": ["One cat"],
        "sub/c.jpg": ["x"],
    }
    assert dataset.splits.tolist() == list(SPLITS)
    assert dataset.image_paths[2] == tmp_path / images / "sub" / "c.jpg"


def test_a_folder_without_splits_is_all_training(tmp_path):
    touch(tmp_path, "a.jpg", "ö.jpg")
    (tmp_path / "captions.csv").write_text(
        "Image, Caption\na.jpg,Ein Hund\nö.jpg,Ça\u2028va\n", encoding="utf-8"
    )
    dataset = open_dataset(f"folder:{tmp_path}")
    assert dataset.counts() == {"train": 2}
    assert dataset.sentences == ["Ein Hund", "Ça va"]
