"""DSpark: speculative decoding with a semi-autoregressive drafter and a confidence scheduler."""

__version__ = "0.1.0"
