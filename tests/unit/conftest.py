"""Fixtures that several of the unit tests use."""

import pytest
import torch


@pytest.fixture(scope="session", autouse=True)
def one_thread():
    """Uses one thread, because with tiny tensors on busy cores, threads only wait for each other."""
    torch.set_num_threads(1)


@pytest.fixture
def two_threads():
    """Sets a number of threads that differs from that of the other tests, and that the test must find unchanged."""
    torch.set_num_threads(2)
    yield 2
    torch.set_num_threads(1)
