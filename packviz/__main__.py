"""`python -m packviz` is the command `packviz`."""

import sys

from packviz.cli import main

sys.exit(main())
