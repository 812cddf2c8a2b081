"""Whatever has words is shown by them."""

from dataclasses import dataclass

from packviz.core.has_text import HasText


@dataclass(frozen=True)
class Result(HasText):
    value: int

    def to_text(self) -> str:
        return f"It is {self.value}."


class Own(Result):
    def __repr__(self) -> str:
        return "own"


def test_a_dataclass_keeps_the_words():
    assert repr(Result(3)) == "It is 3."
    assert repr(Own(3)) == "own"
