#include "torshc_op.h"

#include <zlib.h>

/* Inflates twice: to see how much there is, and then into the result. */
int inflate_bytes(torshc_op *op)
{
    const torshc_tensor *x = &op->inputs[0];
    const int64_t limit = op->attributes[0].ints[0];
    uint8_t part[4096];
    for (int pass = 0; pass < 2; pass++) {
        z_stream stream = {.next_in = x->data, .avail_in = (uInt)torshc_op_count(x)};
        int64_t size = 0;
        int status = inflateInit(&stream);
        while (status == Z_OK) {
            stream.next_out = part;
            stream.avail_out = sizeof part;
            status = inflate(&stream, Z_NO_FLUSH);
            const int64_t made = (int64_t)(sizeof part - stream.avail_out);
            for (int64_t i = 0; pass && i < made; i++)
                ((uint8_t *)op->outputs[0].data)[size + i] = part[i];
            size += made;
            if (size > limit)
                break;
        }
        inflateEnd(&stream);
        if (size > limit)
            return torshc_op_fail(op, "there are more than %lld bytes, the node's limit", (long long)limit);
        if (status != Z_STREAM_END)
            return torshc_op_fail(op, "its input is not what zlib compressed");
        const int made = pass ? 0 : torshc_op_make(op, 0, &size);
        if (made)
            return made;
    }
    return 0;
}
