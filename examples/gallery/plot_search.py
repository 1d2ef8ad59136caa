"""
Find photos with a sentence, and see why they match
===================================================

`PhotoIndex` keeps the points of a folder's photos, so that only new photos are encoded later.
`Explainer` says how much each word contributes to a score.
"""

import tempfile
from pathlib import Path

import matplotlib.pyplot as plt

from fishermix import ImageTextModel, PhotoIndex
from fishermix.cli.demo import copy_packaged_photos
from fishermix.retrieval import Explainer

folder = copy_packaged_photos(
    Path(tempfile.mkdtemp()) / "photos"
)  # pictures of scikit-image and scikit-learn
model = ImageTextModel.load()
index = PhotoIndex(folder, model, index=folder.parent / "index")
index.update()

# %%
# Three queries and their best three photos.

queries = ["a cat looks at the camera", "a cup of coffee on a table", "an old temple"]
figure, axes = plt.subplots(3, 3, figsize=(8, 8), layout="constrained")
for query, row in zip(queries, axes):
    for axis, hit in zip(row, index.search(query, n=3)):
        axis.imshow(plt.imread(index.path(hit)), cmap="gray")
        axis.set(title=f"{hit.score:.2f}  {hit.path}", xticks=[], yticks=[])
    row[0].set_ylabel(query)
plt.show()

# %%
# What the score of the first photo would lose without each word of the sentence.

query = "a small cat looks at the camera"
hit = index.search(query, n=1)[0]
explanation = Explainer(model).explain(query, index.point(hit))
figure, axis = plt.subplots(figsize=(7, 3), layout="constrained")
words = explanation.words
axis.barh(range(len(words)), [part.drop for part in words])
axis.set_yticks(range(len(words)), [part.word for part in words])
axis.invert_yaxis()
axis.set(xlabel="drop of the score without the word", title=f"{hit.path}: score {explanation.score:.2f}")
plt.show()
index.close()
