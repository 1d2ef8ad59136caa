"""Several networks side by side: the columns of one after the columns of the other."""

import numpy as np
from fishermix.errors import FishermixError
from fishermix_photos import ImageEncoder
from PIL import Image


def test_vectors_stand_side_by_side_and_errors_come_through():
    names = "efficientnet-lite2", "efficientnet-lite2:logits"
    parts, fused = [ImageEncoder(name) for name in names], ImageEncoder(names)
    rng = np.random.default_rng(0)
    images = [Image.fromarray(rng.integers(0, 255, (40, 50, 3), np.uint8)) for _ in range(3)]
    wanted = np.hstack([part.transform(images) for part in parts])
    assert (fused.n_features, fused.widths) == (2280, [1280, 1000])
    assert fused.get_feature_names_out()[1280] == "efficientnet-lite2:logits_0"
    assert fused.key not in {part.key for part in parts}
    np.testing.assert_array_equal(fused.transform(images), wanted)
    streamed = dict(fused.stream(image for image in [images[0], b"no image", images[2]]))
    np.testing.assert_array_equal(streamed[0], wanted[0])
    assert isinstance(streamed[1], FishermixError)
    np.testing.assert_array_equal(streamed[2], wanted[2])
