"""An LSTM that writes sentences for points of a joint space."""
