"""What the package's own captioner writes for real photographs."""

import pytest
from fishermix_lab.captions.measures import caption_scores
from fishermix_lab.datasets.readers import open_dataset
from fishermix_photos.model.model import ImageTextModel
from fishermix_photos.model.saved import SHIPPED


@pytest.mark.slow
@pytest.mark.real
def test_it_describes_flickr8k_test_photos(flickr8k):
    if not (SHIPPED / "captioner" / "config.json").is_file():
        pytest.skip("this checkout ships no captioner")
    photos = open_dataset(f"flickr8k:{flickr8k}").sample("test", 40)
    references = [
        [photos.sentences[row] for row in range(len(photos.sentences)) if photos.image_of[row] == image]
        for image in range(len(photos))
    ]
    written = ImageTextModel.load().caption(photos.image_paths)
    # 1,000 photos give 61 or more; of 40 the figure wavers by a few points.
    assert caption_scores(written, references)["bleu1"] > 50
    assert len(set(written)) > 20
    # The sentences of other photos fit worse by far.
    shuffled = caption_scores(written[1:] + written[:1], references)
    assert caption_scores(written, references)["cider_d"] > 3 * shuffled["cider_d"]
