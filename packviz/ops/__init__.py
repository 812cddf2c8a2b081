"""Tensors in, tensors out, with torch alone: helpers, drop-in packing, and the fast methods of running an RNN."""
