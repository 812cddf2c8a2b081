"""Marks for tests of behaviour that only some releases of torch have."""

import pytest
import torch

HERE = ".".join(torch.__version__.split(".")[:2])


def _number(release):
    return tuple(map(int, release.split(".")))


def habit_of(release):
    """Marks a test that needs to pass on one release only, as in `habit_of("2.13")`."""
    return pytest.mark.skipif(release != HERE, reason=f"applies to torch {release}; this is {HERE}")


def habit_since(release):
    """Marks a test that needs to pass on a release and on later ones."""
    return pytest.mark.skipif(
        _number(HERE) < _number(release), reason=f"applies since torch {release}; this is {HERE}"
    )
