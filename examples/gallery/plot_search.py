"""
Find photos with a sentence, and see why they match
===================================================

`PhotoLibrary` keeps the points of all photos, so that only new photos are encoded later. `explain` says how
much each word contributes to a score.
"""

import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
from fishermix_photos import PhotoLibrary, Query
from fishermix_photos.search.terms import parse_query
from PIL import Image
from skimage import data
from sklearn.datasets import load_sample_image

place = Path(tempfile.mkdtemp())
folder = place / "photos"
folder.mkdir()
for name in ("astronaut", "brick", "camera", "cat", "coffee", "coins", "grass", "rocket"):
    Image.fromarray(getattr(data, name)()).save(folder / f"{name}.png")
for name in ("china.jpg", "flower.jpg"):
    Image.fromarray(load_sample_image(name)).save(folder / name)

library = PhotoLibrary(place / "library")
library.update([folder])

# %%
# Three queries and their best three photos.

queries = ["a cat looks at the camera", "a cup of coffee on a table", "an old temple"]
figure, axes = plt.subplots(3, 3, figsize=(8, 8), layout="constrained")
for query, row in zip(queries, axes):
    for axis, photo in zip(row, library.search(Query(parse_query(query), n=3)).photos):
        axis.imshow(plt.imread(photo.path), cmap="gray")
        axis.set(title=f"{photo.score:.2f}  {photo.relative}", xticks=[], yticks=[])
    row[0].set_ylabel(query)
plt.show()

# %%
# What the score of the first photo would lose without each word of the sentence.

query = "a small cat looks at the camera"
photo = library.search(Query(parse_query(query), n=1)).photos[0]
explanation = library.explain(query, photo.id)
figure, axis = plt.subplots(figsize=(7, 3), layout="constrained")
words = explanation.words
axis.barh(range(len(words)), [part.drop for part in words])
axis.set_yticks(range(len(words)), [part.word for part in words])
axis.invert_yaxis()
axis.set(
    xlabel="drop of the score without the word", title=f"{photo.relative}: score {explanation.score:.2f}"
)
plt.show()
library.close()
