"""A GPU that is made up: torch's meta device stands in for it, and constants of the CPU for those measured on it."""

from contextlib import contextmanager, nullcontext

import torch

from packviz.measure import calibration
from packviz.ops import costs, index, running
from packviz.ops.costs import Costs


def constants(device="cuda", fast=()):
    """As `calibrate` would measure them; with some kernels, named as in `costs.key`, made a hundred
    times as fast.

    On a GPU every RNN has a kernel that accepts only padded data.
    """
    seconds = dict(costs.in_force("cpu").seconds)
    for name in [name for name in seconds if name.startswith("rectangles")]:
        seconds.setdefault(name.replace("rectangles", "fused"), _faster(seconds[name], 3))
    for name in seconds:
        if name.split()[0] in fast:
            seconds[name] = _faster(seconds[name], 100)
    return Costs(
        device,
        seconds,
        {"device": device, "device_name": f"a {device} that is made up", "threads": 1},
    )


def _faster(row, times):
    return {term: value / times for term, value in row.items()}


def calibrated(device, modes, seconds, **provenance):
    """What `calibrate` makes of the times that `seconds(spec, training, run)` gives."""
    values = {}
    for point in (calibration._Point(*some) for some in calibration._points(modes, 1)):
        found = values[point] = {}
        for _, training, runs in calibration._rounds(point, device):
            for run in runs:
                found.setdefault(run.key, {})[run.what] = seconds(point.spec, training, run)
    return calibration._Calibration({"device": device, "threads": 1} | provenance, values)


@contextmanager
def in_force(*every):
    """Puts constants in force for a while, and none but these on their kinds of device."""
    before = dict(costs._in_force)
    costs._in_force |= {kind: {} for kind in ("cuda", *(one.device for one in every))}
    for one in every:
        one.use()
    _forget()
    try:
        yield
    finally:
        costs._in_force.clear()
        costs._in_force.update(before)
        _forget()


def _forget():
    costs.forget()
    running.forget()


def stand_in(monkeypatch):
    """Takes the meta device for a GPU."""
    monkeypatch.setattr(index, "ACCELERATORS", ("meta",))
    monkeypatch.setattr(running, "require_values", lambda name, x: None)
    monkeypatch.setattr(
        torch.cuda, "is_current_stream_capturing", lambda: False
    )  # a torch for the CPU cannot say
    monkeypatch.setattr(
        torch, "is_autocast_enabled", lambda device: False
    )  # torch knows no autocast there
    monkeypatch.setattr(torch, "autocast", lambda *given, **options: nullcontext())
