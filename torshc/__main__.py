"""``python -m torshc`` is the ``torshc`` command."""

from torshc.cli import main

if __name__ == "__main__":
    main()
