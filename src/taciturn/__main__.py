"""Entry point of the `taciturn` command and of `python -m taciturn`."""

import sys


def main() -> None:
    """Run a command; Ctrl-C exits quietly even while modules are being imported."""
    try:
        from taciturn.cli import run

        run()
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
