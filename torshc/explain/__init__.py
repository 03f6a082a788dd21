"""What a compilation did and why, as data, and that data as text, JSON and DOT."""

from .data import Explanation, explain
from .detail import group_text
from .dot import to_dot
from .json_form import to_json
from .safe import printable
from .text import to_text

__all__ = ["Explanation", "explain", "group_text", "printable", "to_dot", "to_json", "to_text"]
