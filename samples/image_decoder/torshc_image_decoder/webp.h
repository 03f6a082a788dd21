/* WebP by libwebp. */
#include "image.h"

#if __has_include(<webp/decode.h>)
#define HAS_WEBP 1
#include <webp/decode.h>

static int decode_webp(image *im)
{
    int width = 0, height = 0;
    if (!WebPGetInfo(im->file, im->bytes, &width, &height) || !image_make(im, width, height))
        return 0;
    const size_t size = (size_t)width * (size_t)height * 3;
    return WebPDecodeRGBInto(im->file, im->bytes, im->rgb, size, width * 3) != NULL;
}
#else
#define HAS_WEBP 0
static int decode_webp(image *im) { return im->rgb != NULL; }
#endif
