"""The one place that draws: values in, strings out. No widget, no torch; plotly in one folder only."""
