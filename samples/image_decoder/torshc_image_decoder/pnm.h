/* PGM and PPM, as text (P2, P3) or as bytes (P5, P6). */
#include "image.h"

/* The next number behind blanks and comments; -1 where there is none. */
static int64_t pnm_number(const uint8_t **at, const uint8_t *end)
{
    const uint8_t *p = *at;
    while (p < end && (*p == ' ' || (*p >= '\t' && *p <= '\r') || *p == '#')) {
        if (*p == '#')
            while (p < end && *p != '\n')
                p++;
        else
            p++;
    }
    int64_t found = -1;
    for (; p < end && *p >= '0' && *p <= '9' && found < PIXELS_MAX; p++)
        found = (found < 0 ? 0 : found * 10) + (*p - '0');
    *at = p;
    return found;
}

static int decode_pnm(image *im)
{
    const uint8_t *p = im->file + 2, *end = im->file + im->bytes;
    const int kind = im->file[1] - '0', channels = kind == 3 || kind == 6 ? 3 : 1, text = kind < 4;
    const int64_t width = pnm_number(&p, end), height = pnm_number(&p, end), most = pnm_number(&p, end);
    if (kind != 2 && kind != 3 && kind != 5 && kind != 6)
        return 0;
    if (most <= 0 || most > 65535 || p == end || !image_make(im, width, height))
        return 0;
    const int bytes = most > 255 ? 2 : 1;
    if (!text && end - ++p < width * height * channels * bytes)
        return 0;
    for (int64_t i = 0; i < width * height * channels; i++) {
        int64_t v;
        if (text)
            v = pnm_number(&p, end);
        else {
            v = bytes == 2 ? p[0] << 8 | p[1] : *p;
            p += bytes;
        }
        if (v < 0 || v > most)
            return 0;
        v = most == 255 ? v : (v * 255 + most / 2) / most;
        if (channels == 3)
            im->rgb[i] = (uint8_t)v;
        else
            memset(im->rgb + 3 * i, (int)v, 3);
    }
    return 1;
}
