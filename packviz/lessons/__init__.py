"""What a notebook teaches with: quizzes, checks of exercises, and real sentences."""

from packviz.core.sentences import sentences
from packviz.lessons import checks
from packviz.lessons.progress import Overview
from packviz.lessons.quiz import Quiz, ask
from packviz.lessons.verdict import NotSolvedError, Verdict

__all__ = ["NotSolvedError", "Overview", "Quiz", "Verdict", "ask", "checks", "sentences"]
