"""The caption files of every data set reader."""

import json

from fishermix_lab.datasets.readers import open_dataset

from tests.fuzz.kind import Kind

NAMES = ("0.jpg", "1.jpg", "2.jpg")
LINES = "".join(f"{name}#{number}\tA red dog .\n" for name in NAMES for number in (0, 1))


def add_photos(folder):
    folder.mkdir(exist_ok=True)
    for name in NAMES:
        (folder / name).write_bytes(b"")


def make_karpathy(folder):
    images = [
        {
            "filename": f"{n}.jpg",
            "split": split,
            "sentids": [n],
            "imgid": n,
            "sentences": [{"raw": "A red dog .", "tokens": ["a", "red", "dog"], "sentid": n, "imgid": n}],
        }
        for n, split in enumerate(("train", "val", "test"))
    ]
    (folder / "dataset.json").write_text(json.dumps({"images": images, "dataset": "tiny"}))
    add_photos(folder / "images")


def read_karpathy(folder):
    open_dataset(f"karpathy:{folder / 'dataset.json'}:{folder / 'images'}")


def make_flickr8k(folder):
    (folder / "Flickr8k.token.txt").write_text(LINES)
    (folder / "Flickr_8k.devImages.txt").write_text("1.jpg\n")
    (folder / "Flickr_8k.testImages.txt").write_text("2.jpg\n")
    add_photos(folder / "Images")


def make_flickr30k(folder):
    (folder / "results_20130124.token").write_text(LINES)
    add_photos(folder / "images")


def make_pascal1k(folder):
    (folder / "sentence" / "dog").mkdir(parents=True, exist_ok=True)
    for name in NAMES:
        (folder / "sentence" / "dog" / name.replace(".jpg", ".txt")).write_text("A red dog .\none dog\n")
    add_photos(folder / "images")


def make_coco(folder):
    (folder / "annotations").mkdir(exist_ok=True)
    for half, names in (("train2014", NAMES[:2]), ("val2014", NAMES[2:])):
        images = [{"id": int(name[0]), "file_name": name} for name in names]
        captions = [
            {"id": image["id"], "image_id": image["id"], "caption": "A red dog ."} for image in images
        ]
        content = {"images": images, "annotations": captions}
        (folder / "annotations" / f"captions_{half}.json").write_text(json.dumps(content))
        add_photos(folder / half)


def make_captions(ending):
    def make(folder):
        if ending == "jsonl":
            lines = [
                {"image": name, "captions": ["A red dog .", "one dog"], "split": "train"} for name in NAMES
            ]
            text = "\n".join(map(json.dumps, lines))
        else:
            rows = [("image", "caption", "split"), *((name, '"A dog, red"', "val") for name in NAMES)]
            text = "\n".join(("," if ending == "csv" else "\t").join(row) for row in rows)
        (folder / f"captions.{ending}").write_text(text)
        add_photos(folder)

    return make


def read(kind):
    return lambda folder: open_dataset(f"{kind}:{folder}")


DATASETS = {
    "karpathy json": Kind(make_karpathy, read_karpathy, ("dataset.json",)),
    "Flickr8K text": Kind(make_flickr8k, read("flickr8k"), ("Flickr8k.token.txt", "Flickr_8k.devImages.txt")),
    "Flickr30K text": Kind(make_flickr30k, read("flickr30k"), ("results_20130124.token",)),
    "Pascal1K text": Kind(make_pascal1k, read("pascal1k"), ("sentence/dog/0.txt",)),
    "COCO json": Kind(make_coco, read("coco"), ("annotations/*train*.json", "annotations/*val*.json")),
    **{
        f"captions.{ending}": Kind(make_captions(ending), read("folder"), (f"captions.{ending}",))
        for ending in ("csv", "jsonl")
    },
}
