"""Sources of drafts: `none` (plain decoding), `ngram` (look-up), `lm` (a small model), `dspark`, `dflash` (no head)."""
