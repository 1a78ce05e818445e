"""The `taciturn` command, and `python -m taciturn`."""

import sys


def main() -> None:
    """Run a command; Ctrl-C while the modules load ends it quietly too."""
    try:
        from taciturn.cli import run

        run()
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
