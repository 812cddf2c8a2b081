"""What goes wrong with packed sequences: silent traps, errors that do not say why, and a museum of both."""
