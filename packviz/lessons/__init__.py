"""Provides quizzes, checks of the exercises, and real sentences to use as data."""

import packviz.panels  # noqa: F401 - says which packages are missing
from packviz.core.sentences import sentences
from packviz.lessons import checks
from packviz.lessons.exercise import NotSolvedError, Verdict
from packviz.lessons.quiz import Quiz, ask

__all__ = ["NotSolvedError", "Quiz", "Verdict", "ask", "checks", "sentences"]
