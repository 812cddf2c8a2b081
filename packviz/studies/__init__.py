"""Contains the experiments shown in the notebooks.

Most of them are also commands (`packviz study NAME`).
"""
