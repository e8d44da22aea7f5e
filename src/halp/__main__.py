"""The command as a module: `python -m halp …` is `halp …`, for launchers that start modules."""

from __future__ import annotations

from halp.cli import main

if __name__ == "__main__":
    main()
