"""Turns Markdown into HTML for the pages of the web site."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from markdown_it import MarkdownIt
from markdown_it.token import Token
from mdit_py_plugins.anchors import anchors_plugin
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import get_lexer_by_name

_RAW = "{raw} html"


def raw(html: str) -> str:
    """Returns HTML in a form that Markdown leaves unchanged."""
    return f"``````{_RAW}\n{html}\n``````"


def anchor(title: str) -> str:
    """Returns the anchor of a heading, or the one that a notebook's link to it means."""
    return re.sub(r"[\W_]+", "-", title.lower()).lstrip("-0123456789").rstrip("-")


def _fence(_: object, tokens: Sequence[Token], index: int, *rest: object) -> str:
    """Returns code with colours, or fenced HTML as it is."""
    token = tokens[index]
    if token.info == _RAW:
        return token.content
    language = token.info or "python"
    formatter = HtmlFormatter(cssclass=f"highlight {language}")
    code: str = highlight(token.content, get_lexer_by_name(language), formatter)
    return code.replace("<pre>", '<pre tabindex="0">')


MARKDOWN: Any = MarkdownIt("commonmark", {"typographer": True}).enable(["table", "smartquotes"])
MARKDOWN.use(anchors_plugin, max_level=4, slug_func=anchor, permalink=True)
MARKDOWN.add_render_rule("fence", _fence)
MARKDOWN.add_render_rule("code_block", _fence)
