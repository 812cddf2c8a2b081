"""Functions on tensors that need only torch: helpers, drop-in packing, and fast methods of running an RNN."""
