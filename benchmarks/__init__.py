"""Speed against named peers, measured in the same run: `python -m benchmarks [NAME...]`."""
