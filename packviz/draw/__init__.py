"""The one place that draws: values in, pictures and tables out. No widget, no torch; plotly in `figures` only."""
