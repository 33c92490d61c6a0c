"""``python -m cksc_dist`` is ``cksc``."""

import sys

from cksc_dist.cli import main

if __name__ == "__main__":
    sys.exit(main())
