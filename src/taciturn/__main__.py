"""Entry point of the `taciturn` command and of `python -m taciturn`."""

import os
import sys


def main() -> None:
    """Run a command; Ctrl-C and a closed pipe exit quietly even while modules are being imported."""
    try:
        from taciturn.cli.front_page import answer

        if (page := answer(sys.argv[1:])) is not None:
            print(page, flush=True)
            return
        from taciturn.cli.command_line import run

        run()
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # the interpreter's last flush must not fail
        sys.exit(141)


if __name__ == "__main__":
    main()
