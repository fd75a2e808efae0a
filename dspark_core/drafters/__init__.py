"""Sources of drafts: `none` (plain decoding), `ngram` (look-up), `dspark`, `dflash` (without a sequential head)."""
