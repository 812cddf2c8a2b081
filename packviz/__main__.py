"""Where the command `packviz` and `python -m packviz` begin."""

import os
import signal
import sys
from typing import Any


def main() -> int:
    """Runs the command; Ctrl-C ends it quietly from the first import on."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # else whoever started this wants it ignored
        signal.signal(signal.SIGINT, _stop)
    from packviz import cli  # noqa: PLC0415 - not before that

    return cli.main()


def _stop(number: int, frame: Any) -> None:
    """Ends the program at once: what KeyboardInterrupt does to a half-done import of torch is anyone's guess."""
    os.write(2, b"packviz: stopped\n")
    os._exit(128 + number)  # as a shell has it


if __name__ == "__main__":
    sys.exit(main())
