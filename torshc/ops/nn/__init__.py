"""Layers of neural networks: convolutions, pools, normalisations, attention, recurrent cells."""
