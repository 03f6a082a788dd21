/* PNG by libpng. */
#include "image.h"

#if __has_include(<png.h>)
#define HAS_PNG 1
#include <png.h>

/* Opacity is left out, as the colours stand. */
static int decode_png(image *im)
{
    png_image png;
    memset(&png, 0, sizeof png);
    png.version = PNG_IMAGE_VERSION;
    if (!png_image_begin_read_from_memory(&png, im->file, im->bytes))
        return 0;
    png.format = PNG_FORMAT_RGBA;
    uint8_t *pixels = image_make(im, png.width, png.height) ? malloc(PNG_IMAGE_SIZE(png)) : NULL;
    const int done = pixels && png_image_finish_read(&png, NULL, pixels, 0, NULL);
    png_image_free(&png);
    for (int64_t i = 0; done && i < im->width * im->height; i++)
        memcpy(im->rgb + 3 * i, pixels + 4 * i, 3);
    free(pixels);
    return done;
}
#else
#define HAS_PNG 0
static int decode_png(image *im) { return im->rgb != NULL; }
#endif
