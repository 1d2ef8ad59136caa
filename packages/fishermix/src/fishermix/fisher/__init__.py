"""Fisher vectors of sets of vectors."""
