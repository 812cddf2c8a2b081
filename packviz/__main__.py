"""The entry point of the command `packviz` and of `python -m packviz`."""

import os
import signal
import sys
from types import FrameType


def main() -> int:
    """Runs the command `packviz`. Ctrl-C ends it without a traceback, even while it is imported."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        # Otherwise, the parent process has changed it.
        signal.signal(signal.SIGINT, _handle_interrupt)
    from packviz import cli  # noqa: PLC0415

    return cli.main()


def _handle_interrupt(signal_number: int, frame: FrameType | None) -> None:
    """Ends the program at once: while torch is imported, an exception could turn into another."""
    os.write(2, b"packviz: stopped\n")
    os._exit(128 + signal_number)  # the exit status in a shell


if __name__ == "__main__":
    sys.exit(main())
