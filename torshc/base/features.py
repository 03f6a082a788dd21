"""What some targets have kernels for and others do not: what passes and pipelines ask for in place of a name."""

from __future__ import annotations

from enum import Enum


class Feature(Enum):
    """Something that a target has kernels for."""

    ATTENTION = "scaled dot-product attention"
    BF16_CONVOLUTIONS = "convolutions of bf16 with constants, summed in f32, faster than those of f32"
    BF16_PRODUCTS = "products of bf16 with constants, summed in f32, faster than those of f32"
    BF16_TILES = "attention, and convolutions of three or four channels or with a pool behind, of bf16, summed in f32"
    BF16_WEIGHTS = "products of f32 with constants of bf16, summed in f32"
    BYTE_PRODUCTS = "products and convolutions of bytes, summed in i32"
    CACHED_ATTENTION = "a decoder's step of attention that also writes the longer caches"
    CHANNEL_PACKETS = "convolutions of packets of 16 bytes of channels, many times faster than of fewer channels"
    CONVOLUTION_WEIGHTS = "gradients of the weights of convolutions, of f32"
    FREE_ARITHMETIC = "normalisations that wait for memory, where a few operations more take no time"
    HALF_PRODUCTS = "products, convolutions and attention of f16 and bf16"
    INT4_WEIGHTS = "products of few rows of f16 with weights of 4 bits, two to a byte"
    LONG_SUMS = "sums over dimensions that lie apart in memory, in pieces that are as many as it needs"
    NARROW_WEIGHTS = "products of f32 with weights of i8 that have scales"
    RANKS = "exchanges of tensors between processes that share a model"
    RANKS_ON_CARDS = "the same from card to card, which adds up halves of two ranks as they are"
    ROTARY_POSITIONS = "rotary positions, no slower than as operators of their parts"
    TOTALS = "sums over the pixels of an image of what kernels of convolutions store, in these kernels"
    TF32_ACTIVATIONS = "convolutions of activations of tf32, faster than those that round their factors"


Features = frozenset[Feature]
