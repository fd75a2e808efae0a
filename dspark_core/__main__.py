"""``python -m dspark_core``."""

import sys

from dspark_core.cli import main

sys.exit(main())
