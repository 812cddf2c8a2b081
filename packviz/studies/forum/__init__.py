"""The forum's benchmark: its network, the sweep over batches, its results and its command."""
