"""An extraction in a process of its own, which tells how far it is; the test kills it."""

from fishermix_lab import features as store
from fishermix_photos.model.image_encoder import ImageEncoder


class CountingEncoder(ImageEncoder):
    """Tells the other process how many images it has encoded."""

    def __init__(self, encoder="efficientnet-lite2", count=None):
        super().__init__(encoder, batch_size=2)
        self.count = count

    def stream(self, images, on_open=None):
        for found in super().stream(images, on_open):
            self.count.value += 1
            yield found


def extract_often_committing(paths, network, folder, count):
    store.SECONDS_BETWEEN_COMMITS = 0.005
    store.extract(paths, CountingEncoder(network, count), folder)
