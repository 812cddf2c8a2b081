"""Contains the experiments shown in the notebooks. Each is also a command, which needs little besides torch."""
