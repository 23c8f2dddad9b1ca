"""``python -m tagmask``, the same as the command ``tagmask``."""

from tagmask.cli import main

if __name__ == "__main__":
    main()
