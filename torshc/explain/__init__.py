"""What a compilation did and why, as data, and that data as text, JSON, DOT and a page for a browser."""

from .data import Explanation, count_launches, explain
from .detail import group_text
from .dot import to_dot
from .html_form import Shown, read_measured, read_roof, to_html
from .json_form import to_json
from .sizes import Evaluator
from .text import to_text

__all__ = [
    "Evaluator",
    "Explanation",
    "Shown",
    "count_launches",
    "explain",
    "group_text",
    "read_measured",
    "read_roof",
    "to_dot",
    "to_html",
    "to_json",
    "to_text",
]
