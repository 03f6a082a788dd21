/* TIFF by libtiff, from memory. */
#include "image.h"

#if __has_include(<tiffio.h>)
#define HAS_TIFF 1
#include <stdio.h>

#include <tiffio.h>

typedef struct {
    const image *im;
    toff_t at;
} tiff_file;

static tmsize_t tiff_read(thandle_t handle, void *to, tmsize_t bytes)
{
    tiff_file *f = handle;
    const toff_t size = f->im->bytes, left = f->at < size ? size - f->at : 0;
    const toff_t count = (toff_t)bytes < left ? (toff_t)bytes : left;
    memcpy(to, f->im->file + f->at * (count > 0), (size_t)count);
    f->at += count;
    return (tmsize_t)count;
}

static tmsize_t tiff_write(thandle_t handle, void *from, tmsize_t bytes)
{
    (void)handle, (void)from, (void)bytes;
    return 0;
}

static toff_t tiff_seek(thandle_t handle, toff_t to, int whence)
{
    tiff_file *f = handle;
    f->at = whence == SEEK_SET ? to : whence == SEEK_CUR ? f->at + to : f->im->bytes + to;
    return f->at;
}

static int tiff_close(thandle_t handle)
{
    (void)handle;
    return 0;
}

static toff_t tiff_size(thandle_t handle) { return ((tiff_file *)handle)->im->bytes; }

static int decode_tiff(image *im)
{
    tiff_file file = {im, 0};
    uint32_t width = 0, height = 0;
    TIFFSetErrorHandler(NULL);
    TIFFSetWarningHandler(NULL);
    TIFF *tiff =
        TIFFClientOpen("image", "rm", &file, tiff_read, tiff_write, tiff_seek, tiff_close, tiff_size, NULL, NULL);
    if (!tiff)
        return 0;
    uint32_t *pixels = NULL;
    if (TIFFGetField(tiff, TIFFTAG_IMAGEWIDTH, &width) && TIFFGetField(tiff, TIFFTAG_IMAGELENGTH, &height) &&
        image_make(im, width, height))
        pixels = malloc((size_t)width * height * sizeof *pixels);
    const int done = pixels && TIFFReadRGBAImageOriented(tiff, width, height, pixels, ORIENTATION_TOPLEFT, 1);
    for (int64_t i = 0; done && i < im->width * im->height; i++) {
        im->rgb[3 * i] = TIFFGetR(pixels[i]);
        im->rgb[3 * i + 1] = TIFFGetG(pixels[i]);
        im->rgb[3 * i + 2] = TIFFGetB(pixels[i]);
    }
    free(pixels);
    TIFFClose(tiff);
    return done;
}
#else
#define HAS_TIFF 0
static int decode_tiff(image *im) { return im->rgb != NULL; }
#endif
