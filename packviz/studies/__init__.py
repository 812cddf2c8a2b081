"""Contains the experiments whose results the notebooks show. Each is also a command that needs little but torch."""
