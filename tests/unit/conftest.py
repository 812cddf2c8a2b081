"""What several of the unit tests use."""

import pytest
import torch


@pytest.fixture(scope="module")
def one_thread():
    """Tiny tensors on busy cores: threads only wait for each other."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
