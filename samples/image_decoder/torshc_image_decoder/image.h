/* What decoders of all formats share: the file, and the pixels that they make of it. */
#ifndef IMAGE_H
#define IMAGE_H

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { PIXELS_MAX = 1 << 28 };

typedef struct {
    const uint8_t *file;
    size_t bytes;
    int64_t width, height;
    uint8_t *rgb; /* width * height * 3, from malloc */
} image;

/* Memory for the pixels. Returns whether the size is possible. */
static int image_make(image *im, int64_t width, int64_t height)
{
    if (width <= 0 || height <= 0 || width > PIXELS_MAX / height)
        return 0;
    im->width = width;
    im->height = height;
    im->rgb = malloc((size_t)(width * height * 3));
    return im->rgb != NULL;
}

static inline uint32_t le(const uint8_t *p, int bytes)
{
    uint32_t x = 0;
    for (int i = bytes; i-- > 0;)
        x = x << 8 | p[i];
    return x;
}

#endif
