/* BMP without compression: 24 or 32 bits, or 8 bits of a palette. */
#include "image.h"

static int decode_bmp(image *im)
{
    const uint8_t *f = im->file;
    if (im->bytes < 54)
        return 0;
    const uint32_t start = le(f + 10, 4), header = le(f + 14, 4), bits = le(f + 28, 2);
    const int64_t width = (int32_t)le(f + 18, 4), signed_height = (int32_t)le(f + 22, 4);
    const int64_t height = signed_height < 0 ? -signed_height : signed_height;
    const int64_t stride = (width * bits + 31) / 32 * 4;
    if (le(f + 30, 4) != 0 || (bits != 8 && bits != 24 && bits != 32) || width <= 0 || height > INT32_MAX)
        return 0;
    const uint64_t palette = 14 + (uint64_t)header;
    uint64_t colours = bits == 8 ? le(f + 46, 4) : 0;
    if (bits == 8 && !colours)
        colours = 256;
    if (start + (uint64_t)(stride * height) > im->bytes || palette + 4 * colours > im->bytes ||
        !image_make(im, width, height))
        return 0;
    for (int64_t y = 0; y < height; y++) {
        const uint8_t *row = f + start + (signed_height < 0 ? y : height - 1 - y) * stride;
        for (int64_t x = 0; x < width; x++) {
            const uint8_t *pixel = row + x * (bits / 8);
            if (bits == 8)
                pixel = f + palette + 4 * (*pixel < colours ? *pixel : 0);
            uint8_t *to = im->rgb + (y * width + x) * 3;
            to[0] = pixel[2];
            to[1] = pixel[1];
            to[2] = pixel[0];
        }
    }
    return 1;
}
