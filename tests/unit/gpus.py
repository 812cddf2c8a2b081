"""Lets torch's meta device stand in for a GPU."""

from contextlib import nullcontext

import torch

from packviz.ops import index, running


def stand_in(monkeypatch):
    """Takes the meta device for a GPU."""
    monkeypatch.setattr(index, "ACCELERATORS", ("meta",))
    monkeypatch.setattr(running, "reject_meta", lambda name, x: None)
    monkeypatch.setattr(
        torch.cuda, "is_current_stream_capturing", lambda: False
    )  # a torch for the CPU cannot say
    monkeypatch.setattr(
        torch, "is_autocast_enabled", lambda device: False
    )  # torch knows no autocast there
    monkeypatch.setattr(torch, "autocast", lambda *given, **options: nullcontext())
