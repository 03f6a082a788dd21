/* Memory of values: blocks that are counted, and reused once nothing uses them; characters. */
#define _GNU_SOURCE
#include "t_frame.h"

#include <stdlib.h>

#define T_KEPT_MAX ((size_t)1 << 28) /* bytes of free blocks that wait for use */

/* ---- memory ---- */

t_block *t_take(t_frame *f, size_t bytes) {
    for (t_block **at = &f->free; *at; at = &(*at)->next)
        if ((*at)->bytes >= bytes && (*at)->bytes / 2 <= bytes) {
            t_block *found = *at;
            *at = found->next;
            f->kept -= found->bytes;
            found->users = 1;
            found->newest = T_HERE;
            return found;
        }
    void *memory = NULL;
    if (posix_memalign(&memory, T_ALIGN, sizeof(t_block) + (bytes > T_ALIGN ? bytes : T_ALIGN))) {
        t_fail(TORSHC_E_MEMORY, "no memory for a value of %zu bytes", bytes);
        return NULL;
    }
    t_block *block = memory;
    *block = (t_block){.users = 1, .bytes = bytes};
    return block;
}

static void give(t_frame *f, t_block *block) {
    block->values = 0;
    if (f->kept + block->bytes > T_KEPT_MAX) {
        t_free_copy(f, block->copy);
        free(block);
        return;
    }
    f->kept += block->bytes;
    block->next = f->free;
    f->free = block;
}

int64_t t_element_bytes(torshc_dtype dtype) {
    if (t_is_nested(dtype))
        return sizeof(t_value);
    return dtype.code == TORSHC_STRING ? (int64_t)sizeof(t_string) : (dtype.bits + 7) / 8;
}

int64_t t_count(const t_value *v) {
    int64_t count = v->ndim >= 0;
    for (int32_t d = 0; d < v->ndim; d++)
        count *= v->shape[d];
    return count;
}

int t_make(t_frame *f, t_value *v, torshc_dtype dtype, int32_t ndim, const int64_t *shape) {
    int64_t bytes = t_element_bytes(dtype), limit = bytes;
    if (ndim < 0 || ndim > T_VALUE_RANK)
        return t_fail(TORSHC_E_SIZE, "a value has too many dimensions: %d", (int)ndim);
    for (int32_t d = 0; d < ndim; d++) {
        if (shape[d] < 0)
            return t_fail(TORSHC_E_SHAPE, "a value has a dimension of %lld", (long long)shape[d]);
        if (__builtin_mul_overflow(limit, shape[d] ? shape[d] : 1, &limit) || limit > T_BYTES_MAX)
            return t_fail(TORSHC_E_SIZE, "a value is larger than 2^47 bytes");
        bytes *= shape[d];
    }
    t_block *block = t_take(f, (size_t)bytes);
    if (!block)
        return TORSHC_E_MEMORY;
    v->dtype = dtype;
    v->ndim = ndim;
    if (ndim)
        memcpy(v->shape, shape, sizeof *shape * (size_t)ndim);
    v->data = block->data;
    v->block = block;
    if (t_is_nested(dtype)) {
        block->values = t_count(v);
        for (int64_t i = 0; i < block->values; i++)
            t_values(v)[i] = (t_value){.ndim = -1};
    }
    return TORSHC_OK;
}

/* Sequences hold sequences only as deep as their type says. */
void t_drop(t_frame *f, t_value *v) {
    t_block *block = v->block;
    *v = (t_value){.ndim = -1};
    if (!block || --block->users)
        return;
    t_value *inner = (t_value *)(void *)block->data;
    for (int64_t i = 0; i < block->values; i++)
        t_drop(f, &inner[i]);
    give(f, block);
}

int t_share(t_frame *f, t_value *to, const t_value *from) {
    (void)f;
    *to = *from;
    if (to->block)
        to->block->users++;
    return TORSHC_OK;
}

int t_view(t_frame *f, t_value *to, const t_value *from, int32_t ndim, const int64_t *shape) {
    int64_t count = 1;
    for (int32_t d = 0; d < ndim && d < T_VALUE_RANK; d++)
        if (shape[d] < 0 || __builtin_mul_overflow(count, shape[d], &count))
            return t_fail(TORSHC_E_SHAPE, "a shape has a dimension of %lld", (long long)shape[d]);
    if (ndim < 0 || ndim > T_VALUE_RANK || count != t_count(from))
        return t_fail(TORSHC_E_SHAPE, "%lld elements do not fit a shape of %lld", (long long)t_count(from),
                      (long long)count);
    t_share(f, to, from);
    to->ndim = ndim;
    if (ndim)
        memcpy(to->shape, shape, sizeof *shape * (size_t)ndim);
    return TORSHC_OK;
}

char *t_characters(t_frame *f, int64_t bytes) {
    if (!f->text || f->text->bytes - f->text->used < bytes) {
        const int64_t capacity = bytes > 65536 ? bytes : 65536;
        t_chunk *chunk = bytes >= 0 && bytes < T_BYTES_MAX ? malloc(sizeof *chunk + (size_t)capacity) : NULL;
        if (!chunk) {
            t_fail(TORSHC_E_MEMORY, "no memory for %lld characters", (long long)bytes);
            return NULL;
        }
        *chunk = (t_chunk){f->text, capacity, 0};
        f->text = chunk;
    }
    char *found = f->text->data + f->text->used;
    f->text->used += bytes;
    return found;
}

void *t_scratch(t_frame *f, int64_t bytes) {
    (void)f;
    void *memory = bytes >= 0 && bytes < T_BYTES_MAX ? malloc(bytes ? (size_t)bytes : 1) : NULL;
    if (!memory)
        t_fail(TORSHC_E_MEMORY, "no memory for a workspace of %lld bytes", (long long)bytes);
    return memory;
}

void t_scratch_free(void *memory) { free(memory); }

void t_free_values(t_frame *f) {
    for (t_block *block = f->free, *next; block; block = next) {
        next = block->next;
        t_free_copy(f, block->copy);
        free(block);
    }
    f->free = NULL;
    t_free_text(f, NULL);
}

/* All characters but for those of one chunk, which may be used again. */
void t_free_text(t_frame *f, t_chunk *kept) {
    for (t_chunk *chunk = f->text, *next; chunk; chunk = next) {
        next = chunk->next;
        if (chunk != kept)
            free(chunk);
    }
    f->text = kept;
    if (kept) {
        kept->next = NULL;
        kept->used = 0;
    }
}
