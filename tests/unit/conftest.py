"""What several of the unit tests use."""

import pytest
import torch


@pytest.fixture(scope="session", autouse=True)
def one_thread():
    """Tiny tensors on busy cores: threads only wait for each other."""
    torch.set_num_threads(1)


@pytest.fixture
def two_threads():
    """Another number than that of the tests, for what has to leave it alone. A test looks whether it has."""
    torch.set_num_threads(2)
    yield 2
    torch.set_num_threads(1)
