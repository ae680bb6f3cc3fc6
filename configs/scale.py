"""Making a recipe smaller."""

import ml_collections

from fedjax_skew.data import datasets

_IMAGE_SIZE = 32  # Pixels per side that a CPU can train on.


def use_model(config: ml_collections.ConfigDict, model: str) -> None:
    """Sets a smaller network, and smaller images where they are larger than 32 pixels."""
    config.model = model
    info = datasets.find(config.dataset.name)
    if info is not None and info.shape[:1] > (_IMAGE_SIZE,):
        config.dataset.image_size = _IMAGE_SIZE
