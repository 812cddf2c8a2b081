"""Drives, shows and times a real JupyterLab in a real Chromium."""
