"""Right or wrong: states compared, batches diagnosed, errors explained, graphs held to fixed shapes."""
