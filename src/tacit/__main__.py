"""The `tacit` command, and `python -m tacit`."""

import sys


def main() -> None:
    """Run a command; Ctrl-C while the modules load ends it quietly too."""
    try:
        from tacit.cli import run  # noqa: PLC0415

        run()
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
