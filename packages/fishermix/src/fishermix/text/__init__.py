"""Word vectors, whitening and sentence vectors."""
