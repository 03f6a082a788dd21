/* ONNX's ImageDecoder: which format a file has, and its pixels as the node wants them. */
#include "torshc_op.h"

#include "bmp.h"
#include "jpeg.h"
#include "jpeg2000.h"
#include "png_file.h"
#include "pnm.h"
#include "tiff_file.h"
#include "webp.h"

typedef struct {
    const char *name, *library; /* what to install for it */
    const char *magic;
    size_t at, bytes; /* where the magic is */
    int here;
    int (*decode)(image *im);
} format;

static const format formats[] = {
    {"JPEG 2000", "libopenjp2-7-dev", "\xff\x4f\xff\x51", 0, 4, HAS_JPEG2000, decode_jpeg2000},
    {"JPEG 2000", "libopenjp2-7-dev", "jP  \r\n\x87\n", 4, 8, HAS_JPEG2000, decode_jpeg2000},
    {"JPEG", "libjpeg-dev", "\xff\xd8\xff", 0, 3, HAS_JPEG, decode_jpeg},
    {"PNG", "libpng-dev", "\x89PNG\r\n\x1a\n", 0, 8, HAS_PNG, decode_png},
    {"WebP", "libwebp-dev", "WEBP", 8, 4, HAS_WEBP, decode_webp},
    {"TIFF", "libtiff-dev", "II*\0", 0, 4, HAS_TIFF, decode_tiff},
    {"TIFF", "libtiff-dev", "MM\0*", 0, 4, HAS_TIFF, decode_tiff},
    {"BMP", "", "BM", 0, 2, 1, decode_bmp},
    {"PNM", "", "P", 0, 1, 1, decode_pnm},
};

static const format *format_of(const image *im)
{
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++) {
        const format *f = &formats[i];
        if (im->bytes > f->at + f->bytes && !memcmp(im->file + f->at, f->magic, f->bytes))
            return f;
    }
    return NULL;
}

/* ITU-R 601 in 16 bits, as Pillow has it. */
static uint8_t grey(const uint8_t *p) { return (uint8_t)((p[0] * 19595 + p[1] * 38470 + p[2] * 7471 + 0x8000) >> 16); }

int decode_image(torshc_op *op)
{
    const torshc_tensor *stream = &op->inputs[0];
    const char *wanted = op->attributes[0].text;
    const int channels = strcmp(wanted, "Grayscale") ? 3 : 1, first = strcmp(wanted, "BGR") ? 0 : 2;
    if (stream->dtype.code != TORSHC_UINT || stream->dtype.bits != 8)
        return torshc_op_fail(op, "the file has to be of uint8");
    image im = {stream->data, (size_t)torshc_op_count(stream), 0, 0, NULL};
    const format *f = format_of(&im);
    if (f && !f->here)
        return torshc_op_fail(op, "it was compiled without %s: install %s and compile the model again", f->name,
                              f->library);
    if (!f || !f->decode(&im))
        im.width = im.height = 0; /* ONNX wants nothing where a file cannot be decoded */
    const int64_t shape[] = {im.height, im.width, channels};
    const int status = torshc_op_make(op, 0, shape);
    uint8_t *to = op->outputs[0].data;
    for (int64_t i = 0; !status && i < im.width * im.height; i++) {
        const uint8_t *p = im.rgb + 3 * i;
        if (channels == 1)
            to[i] = grey(p);
        else
            to[3 * i] = p[first], to[3 * i + 1] = p[1], to[3 * i + 2] = p[2 - first];
    }
    free(im.rgb);
    return status;
}
