"""Measures the contrast of colours, as WCAG 2.2 defines it."""


def contrast(colour, other):
    """Returns the contrast ratio of two `#rrggbb` colours, from 1 to 21.

    It is defined through relative luminance.
    """
    dark, light = sorted([luminance(colour), luminance(other)])
    return (light + 0.05) / (dark + 0.05)


def luminance(colour):
    linear = []
    for channel in bytes.fromhex(colour[1:]):
        share = channel / 255
        curved = ((share + 0.055) / 1.055) ** 2.4
        linear.append(share / 12.92 if share <= 0.04045 else curved)
    red, green, blue = linear
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue
