"""Train, measure and reproduce: everything that the paper needs and a photo library does not."""
