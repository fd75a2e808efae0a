"""``python -m dspark_core``."""

import os
import sys

from dspark_core.apart import is_working
from dspark_core.cli import main

code = main()
if is_working():  # an interrupted command has left it: torch aborts a program that ends around its threads
    os._exit(code)
sys.exit(code)
