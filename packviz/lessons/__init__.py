"""Provides the parts of a lesson: quizzes, checks of the exercises, and real sentences to use as
data.
"""

import packviz.panels
from packviz.core.sentences import sentences
from packviz.lessons import checks
from packviz.lessons.exercise import NotSolvedError, Verdict
from packviz.lessons.quiz import Quiz, ask

__all__ = ["NotSolvedError", "Quiz", "Verdict", "ask", "checks", "sentences"]
