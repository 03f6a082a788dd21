"""The version of this release, or of the next one; apart so that nothing else is imported to know it."""

__version__ = "0.1.0"
