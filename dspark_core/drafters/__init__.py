"""Sources of drafts: `none` (plain decoding), `dspark` and `dflash` (the same backbone without a sequential head)."""
