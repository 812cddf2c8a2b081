"""What one release of torch does and says, and others need not: no promise of packviz."""

import pytest
import torch

HERE = ".".join(torch.__version__.split(".")[:2])


def _number(release):
    return tuple(map(int, release.split(".")))


def habit_of(release):
    """A mark for a test that need hold on one release alone, as `habit_of("2.13")`."""
    return pytest.mark.skipif(release != HERE, reason=f"a habit of torch {release}; this is {HERE}")


def habit_since(release):
    """A mark for a test that need hold from one release on."""
    return pytest.mark.skipif(_number(HERE) < _number(release), reason=f"so since torch {release}; this is {HERE}")
