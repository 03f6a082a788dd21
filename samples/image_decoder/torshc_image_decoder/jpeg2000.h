/* JPEG 2000 by OpenJPEG, from memory: a file (JP2) or a bare stream. */
#include "image.h"

#if __has_include(<openjpeg.h>)
#define HAS_JPEG2000 1
#include <openjpeg.h>

typedef struct {
    const image *im;
    size_t at;
} j2k_file;

static OPJ_SIZE_T j2k_read(void *to, OPJ_SIZE_T bytes, void *user)
{
    j2k_file *f = user;
    const size_t left = f->im->bytes - f->at, count = bytes < left ? bytes : left;
    if (!count)
        return (OPJ_SIZE_T)-1;
    memcpy(to, f->im->file + f->at, count);
    f->at += count;
    return count;
}

static OPJ_OFF_T j2k_skip(OPJ_OFF_T bytes, void *user)
{
    j2k_file *f = user;
    const size_t left = f->im->bytes - f->at, count = bytes < 0 ? 0 : (size_t)bytes < left ? (size_t)bytes : left;
    f->at += count;
    return (OPJ_OFF_T)count;
}

static OPJ_BOOL j2k_seek(OPJ_OFF_T to, void *user)
{
    j2k_file *f = user;
    if (to < 0 || (size_t)to > f->im->bytes)
        return OPJ_FALSE;
    f->at = (size_t)to;
    return OPJ_TRUE;
}

/* A component at a pixel in 8 bits. */
static uint8_t j2k_sample(const opj_image_comp_t *c, int64_t x, int64_t y)
{
    int64_t v = c->data[y / c->dy * c->w + x / c->dx];
    v += c->sgnd ? INT64_C(1) << (c->prec - 1) : 0;
    v = c->prec > 8 ? v >> (c->prec - 8) : c->prec < 8 ? v * 255 / ((1 << c->prec) - 1) : v;
    return (uint8_t)(v < 0 ? 0 : v > 255 ? 255 : v);
}

static int j2k_pixels(image *im, const opj_image_t *from)
{
    if (!from->numcomps || !image_make(im, (int64_t)from->x1 - from->x0, (int64_t)from->y1 - from->y0))
        return 0;
    for (uint32_t k = 0; k < from->numcomps && k < 3; k++) {
        const opj_image_comp_t *c = &from->comps[k];
        if (!c->data || c->prec < 1 || c->prec > 31 || (int64_t)c->w * c->dx < im->width ||
            (int64_t)c->h * c->dy < im->height)
            return 0;
    }
    for (int64_t i = 0; i < im->width * im->height; i++)
        for (uint32_t k = 0; k < 3; k++)
            im->rgb[3 * i + k] = j2k_sample(&from->comps[from->numcomps < 3 ? 0 : k], i % im->width, i / im->width);
    return 1;
}

static int decode_jpeg2000(image *im)
{
    j2k_file file = {im, 0};
    opj_dparameters_t parameters;
    opj_image_t *made = NULL;
    opj_set_default_decoder_parameters(&parameters);
    opj_codec_t *codec = opj_create_decompress(im->file[0] == 0xff ? OPJ_CODEC_J2K : OPJ_CODEC_JP2);
    opj_stream_t *stream = opj_stream_default_create(OPJ_TRUE);
    opj_stream_set_read_function(stream, j2k_read);
    opj_stream_set_skip_function(stream, j2k_skip);
    opj_stream_set_seek_function(stream, j2k_seek);
    opj_stream_set_user_data(stream, &file, NULL);
    opj_stream_set_user_data_length(stream, im->bytes);
    const int done = opj_setup_decoder(codec, &parameters) && opj_read_header(stream, codec, &made) &&
                     opj_decode(codec, stream, made) && opj_end_decompress(codec, stream) && j2k_pixels(im, made);
    if (made)
        opj_image_destroy(made);
    opj_stream_destroy(stream);
    opj_destroy_codec(codec);
    return done;
}
#else
#define HAS_JPEG2000 0
static int decode_jpeg2000(image *im) { return im->rgb != NULL; }
#endif
