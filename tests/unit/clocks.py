"""A clock that a test advances, in place of the real ones."""

from packviz.measure import timing


class Clock:
    """Time goes by only when a call says so."""

    def __init__(self, monkeypatch, *modules):
        """Stands in for the clocks of these modules, and for `time.monotonic`."""
        self.now = 100.0
        monkeypatch.setattr(timing.time, "monotonic", lambda: self.now)
        for module in (timing, *modules):
            monkeypatch.setattr(module, "make_stopwatch", lambda device: self)

    def __call__(self, call):
        began = self.now
        call()
        return self.now - began
