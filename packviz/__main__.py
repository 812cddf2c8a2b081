"""The entry point of the command `packviz` and of `python -m packviz`."""

import os
import signal
import sys
from typing import Any


def main() -> int:
    """Runs the command. Ctrl-C ends it quietly, even during the first import."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # otherwise the parent process wants it ignored
        signal.signal(signal.SIGINT, _stop)
    from packviz import cli  # noqa: PLC0415 - after the handler is set

    return cli.main()


def _stop(number: int, frame: Any) -> None:
    """Ends the program at once, because a KeyboardInterrupt during the import of torch could raise any error."""
    os.write(2, b"packviz: stopped\n")
    os._exit(128 + number)  # the exit status in a shell


if __name__ == "__main__":
    sys.exit(main())
