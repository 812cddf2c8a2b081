"""Experiments whose recorded results the notebooks show. Each runs as a command on a bare machine with torch."""
