"""Functions on tensors that need only torch: helpers, drop-in packing, and fast ways to run an RNN."""
