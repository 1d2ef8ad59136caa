"""Several networks side by side: the columns of one after the columns of the other."""

import numpy as np
from fishermix.errors import FishermixError
from fishermix_photos import ImageEncoder
from fishermix_photos.vision.encoder import FusedEncoder
from PIL import Image


def test_vectors_stand_side_by_side_and_errors_come_through():
    parts = [ImageEncoder(), ImageEncoder("efficientnet-lite2:logits")]
    fused = FusedEncoder(parts)
    rng = np.random.default_rng(0)
    images = [Image.fromarray(rng.integers(0, 255, (40, 50, 3), np.uint8)) for _ in range(3)]
    wanted = np.hstack([part.transform(images) for part in parts])
    assert fused.n_features == 2280
    assert fused.key not in {part.key for part in parts}
    assert fused.max_pixels_ == parts[0].max_pixels_
    np.testing.assert_array_equal(fused.transform(images), wanted)
    streamed = dict(fused.stream(image for image in [images[0], b"no image", images[2]]))
    np.testing.assert_array_equal(streamed[0], wanted[0])
    assert isinstance(streamed[1], FishermixError)
    np.testing.assert_array_equal(streamed[2], wanted[2])
