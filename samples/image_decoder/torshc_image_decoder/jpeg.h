/* JPEG by libjpeg, or libjpeg-turbo. */
#include "image.h"

#if __has_include(<jpeglib.h>)
#define HAS_JPEG 1
#include <setjmp.h>
#include <stdio.h>

#include <jpeglib.h>

typedef struct {
    struct jpeg_error_mgr manager;
    jmp_buf back;
} jpeg_fault;

static void jpeg_leave(j_common_ptr info) { longjmp(((jpeg_fault *)info->err)->back, 1); }

static void jpeg_quiet(j_common_ptr info) { (void)info; }

static int decode_jpeg(image *im)
{
    struct jpeg_decompress_struct info;
    jpeg_fault fault;
    info.err = jpeg_std_error(&fault.manager);
    fault.manager.error_exit = jpeg_leave;
    fault.manager.output_message = jpeg_quiet;
    if (setjmp(fault.back)) {
        jpeg_destroy_decompress(&info);
        return 0;
    }
    jpeg_create_decompress(&info);
    jpeg_mem_src(&info, (unsigned char *)(uintptr_t)im->file, (unsigned long)im->bytes);
    jpeg_read_header(&info, TRUE);
    info.out_color_space = JCS_RGB;
    jpeg_start_decompress(&info);
    if (!image_make(im, info.output_width, info.output_height))
        longjmp(fault.back, 1);
    while (info.output_scanline < info.output_height) {
        JSAMPROW row = im->rgb + (size_t)info.output_scanline * info.output_width * 3;
        jpeg_read_scanlines(&info, &row, 1);
    }
    jpeg_finish_decompress(&info);
    jpeg_destroy_decompress(&info);
    return 1;
}
#else
#define HAS_JPEG 0
static int decode_jpeg(image *im) { return im->rgb != NULL; }
#endif
