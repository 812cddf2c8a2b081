"""Refuses what makes the host wait for a device. On the meta device, nothing needs a GPU."""

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class NoWaiting(TorchDispatchMode):
    """Refuses every operation that makes the host wait for a device other than the CPU."""

    REFUSED = ("_local_scalar_dense", "nonzero", "masked_select", "is_nonzero", "equal")

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name, given = func.overloadpacket.__name__, kwargs or {}
        tensors = [one for one in tree_leaves((args, given)) if isinstance(one, torch.Tensor)]
        if not all(one.is_cpu for one in tensors):
            assert name not in self.REFUSED, f"{name} waits for the device"
            masks = [
                one for one in tensors[1:] if name.startswith("index") and one.dtype == torch.bool
            ]
            assert not masks, "a mask waits for the device: where is it true?"
        out = func(*args, **given)
        if name == "_to_copy" and args[0].device != out.device:
            assert not out.is_cpu, "a copy to the host waits for the device"
            assert given.get("non_blocking"), (
                "a copy to the device waits for it unless it is told not to"
            )
        if name == "copy_" and args[0].device != args[1].device:
            assert not args[0].is_cpu, "a copy to the host waits for the device"
            assert args[2:] == (True,), "a copy to the device waits for it unless it is told not to"
        return out
