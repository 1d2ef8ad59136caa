"""Networks that are not in the package: their weights become an ONNX file in the data folder."""
