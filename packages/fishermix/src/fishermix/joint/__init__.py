"""The joint space of two views, its hubness correction, and the ranks that measure retrieval in it."""
