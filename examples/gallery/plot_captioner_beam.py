"""
How the captioner writes a sentence
===================================

The captioner is an LSTM that reads the point of a photo in the joint space and then predicts one word
after the other. A beam search keeps the most probable beginnings; the joint space chooses among the
finished sentences.
"""

import matplotlib.pyplot as plt
from fishermix_photos import ImageTextModel
from PIL import Image
from skimage import data
from sklearn.datasets import load_sample_image

model = ImageTextModel.load()
photos = {"coffee": data.coffee(), "cat": data.chelsea(), "temple": load_sample_image("china.jpg")}
points = model.encode_images([Image.fromarray(photo) for photo in photos.values()])

# %%
# The sentences of the beam, by their log probability per word, and how well each matches the photo.

beams = model.captioner.candidates(points, beam=5)
figure, axes = plt.subplots(len(photos), 2, figsize=(10, 8), layout="constrained", width_ratios=[1, 2])
for (left, right), photo, point, beam in zip(axes, photos.values(), points, beams):
    left.imshow(photo)
    left.set(xticks=[], yticks=[])
    sentences = [sentence for sentence, _ in beam]
    cosines = model.encode_text(sentences) @ point
    right.barh(range(len(sentences)), cosines, color="#b9c8d8")
    for place, (sentence, score) in enumerate(beam):
        right.text(0.01, place, f"{sentence} ({score:.2f})", va="center", fontsize=8)
    right.invert_yaxis()
    right.set(yticks=[], xlim=(0, 0.8), title="sentence (log probability)", xlabel="cosine with the photo")
plt.show()

# %%
# The captions that `fishermix caption` prints.

for name, found in zip(photos, model.describe_points(points)):
    print(f"{name}: {found.sentence}")
