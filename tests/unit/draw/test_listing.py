"""Code in a picture: every line at its place, the marked ones told from the others without colour."""

from drawings import ParsedSvg

from packviz.draw import listing

LINES = [
    (9, "def f(x):", "", False),
    (10, "    return x < 1", "✗", True),
    (11, "    # <end>", "!", False),
]


def test_in_words():
    assert (
        listing.describe(LINES) == "    9  def f(x):\n✗  10      return x < 1\n!  11      # <end>"
    )


def test_lines_stand_under_each_other_as_they_are_indented():
    drawing = ParsedSvg(listing.draw(LINES, "light").svg())
    first, second, third = (drawing.text(said) for said in ("def f(x):", "return x < 1", "# <end>"))
    assert first.y < second.y < third.y
    assert first.x < second.x == third.x
    assert drawing.text("✗").y == second.y
    assert drawing.text("10").anchor == "end"
