"""A real JupyterLab in a real Chromium: driven, looked at and timed."""
