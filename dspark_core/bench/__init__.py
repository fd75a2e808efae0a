"""Paired measurement: plain decoding, the drafters and transformers' own generate, on the same prompts."""
