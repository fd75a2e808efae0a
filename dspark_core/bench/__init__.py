"""Paired measurement: plain decoding, dflash, dspark and transformers' own generate, on the same prompts."""
