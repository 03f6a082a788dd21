"""Speed on a card beside what PyTorch calls there; see :mod:`tests.card.__main__`."""
