"""ONNX's ImageDecoder: JPEG, PNG, WebP, TIFF and JPEG 2000 by libraries that are installed, BMP and PNM by itself."""

from __future__ import annotations

import io
import subprocess
from pathlib import Path
from typing import Any

import numpy as np

from torshc import ops

# The header that says whether a format's library is installed, and what is linked then.
FORMATS = {
    "JPEG": ("jpeglib.h", ["jpeg"]),
    "PNG": ("png.h", ["png16"]),
    "WebP": ("webp/decode.h", ["webp"]),
    "TIFF": ("tiffio.h", ["tiff"]),
    "JPEG 2000": ("openjpeg.h", ["openjp2"]),
}
# OpenJPEG's header lies in a folder with its version.
INCLUDES = [str(f) for top in ("/usr/include", "/usr/local/include") for f in sorted(Path(top).glob("openjpeg-2.*"))][
    -1:
]
HEADERS = ["image.h", "bmp.h", "jpeg.h", "jpeg2000.h", "png_file.h", "pnm.h", "tiff_file.h", "webp.h"]


def _is_installed(header: str) -> bool:
    """Whether the C compiler finds a header; decoder.c asks the same by __has_include."""
    words = ["cc", "-E", "-xc", "-", *(f"-I{folder}" for folder in INCLUDES)]
    text = f"#include <stdio.h>\n#include <{header}>\n"
    try:
        return subprocess.run(words, input=text, text=True, capture_output=True).returncode == 0
    except OSError:
        return False


LIBRARIES = [name for header, names in FORMATS.values() if _is_installed(header) for name in names]


def _reference(stream: Any, pixel_format: str) -> Any:
    """By Pillow, where that is installed."""
    import PIL.Image

    image = PIL.Image.open(io.BytesIO(stream.tobytes()))
    if pixel_format == "Grayscale":
        return np.array(image.convert("L"))[..., None]
    return np.array(image.convert("RGB"))[..., :: -1 if pixel_format == "BGR" else 1]


@ops.kernel(
    "ImageDecoder", "", c="decoder.c", function="decode_image", host=True, headers=HEADERS, includes=INCLUDES,
    libraries=LIBRARIES, reference=_reference,
)  # fmt: skip
def image_decoder(stream, *, pixel_format: str = "RGB"):
    """The pixels of a file, [height, width, channels]; empty where it cannot be decoded."""
    channels = {"RGB": 3, "BGR": 3, "Grayscale": 1}
    if pixel_format not in channels:
        raise ValueError(f"pixel_format is {pixel_format!r}; one of {', '.join(channels)}")
    return ops.Result(ops.U8, (None, None, channels[pixel_format]))
