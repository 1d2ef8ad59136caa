"""Regularized canonical correlation analysis at full size: up to 36,000 features on the larger side."""
