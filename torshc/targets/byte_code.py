"""Templates as byte code, kept in the cache of objects.

Making it takes a quarter of a second, a fifth of a small model's compilation whose objects are all in the cache.
"""

from __future__ import annotations

import marshal
import sys

import jinja2
from jinja2.bccache import Bucket

from ..base.cache import Cache, content_key
from ..base.resources import cache_folder


class ByteCode(jinja2.BytecodeCache):
    """Byte code of templates by their texts, and by what makes it: this Python and this Jinja.

    As Python's own it is neither read nor kept where Python is told not to write any (``PYTHONDONTWRITEBYTECODE``).
    Entries that are damaged, or that others could have written, are not used (:mod:`torshc.base.cache`).
    """

    def __init__(self) -> None:
        self._cache = Cache(None if sys.dont_write_bytecode else cache_folder())

    def load_bytecode(self, bucket: Bucket) -> None:
        """Take what is kept of a template, if there is any."""
        if (data := self._cache.get(_key(bucket))) is not None:
            bucket.code = marshal.loads(data)

    def dump_bytecode(self, bucket: Bucket) -> None:
        """Keep a template's byte code."""
        self._cache.put(_key(bucket), marshal.dumps(bucket.code))


def _key(bucket: Bucket) -> str:
    e = bucket.environment
    form = f"{e.trim_blocks} {e.lstrip_blocks} {e.keep_trailing_newline}"
    return content_key(["template", sys.version, jinja2.__version__, form, bucket.key, bucket.checksum])
