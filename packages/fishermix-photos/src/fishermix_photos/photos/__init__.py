"""Photos as vectors of a convolutional network."""
