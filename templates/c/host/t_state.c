/* Libraries that train: steps, and what an open model keeps from one to the next, in memory and in files.
 *
 * A file is safetensors: the length of its header, the header, a digest of all that follows, and the states, one behind the
 * other. The header is the same for all files of this model and optimiser, so it is compared and never parsed.
 */
#define _GNU_SOURCE
#include "t_model.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define P (t_the_program())

enum { LENGTH = 8, DIGEST = 8, NAMES_MAX = 1000, HASH = 64 };
static const char MARK[] = "{\"__metadata__\":{\"format\":\"torshc-state\",\"model\":\"";

int torshc_train(torshc_model *m, const torshc_tensor *inputs, int32_t input_count, const torshc_tensor *outputs,
                 int32_t output_count, void *workspace, size_t bytes) {
    const int status = t_check_alive(m, "torshc_train");
    return status ? status : t_run_checked(m, inputs, input_count, outputs, output_count, workspace, bytes);
}

/* ---- the states ---- */

int32_t torshc_state_count(void) { return P->state_count; }

static int is_state(int32_t index) { return index >= 0 && index < P->state_count; }

const char *torshc_state_name(int32_t index) { return is_state(index) ? P->state[index].port.name : NULL; }

int torshc_state_info(int32_t index, torshc_dtype *dtype, int32_t *ndim, const int64_t **dims) {
    if (!is_state(index))
        return t_fail(TORSHC_E_ARGUMENT, "torshc_state_info: state %d of %d", (int)index, (int)P->state_count);
    const t_port *port = &P->state[index].port;
    if (dtype)
        *dtype = port->dtype;
    if (ndim)
        *ndim = port->ndim;
    if (dims)
        *dims = port->dims;
    return TORSHC_OK;
}

static uint64_t bytes_of(int32_t index) { return P->state[index].bytes * (uint64_t)P->state[index].parts; }

/* One of them, which may lie on a device, to the host's memory: the whole of it, of which other ranks may have parts. */
static int read_state(torshc_model *m, int32_t index, void *to) {
    const t_state *s = &P->state[index];
    if (!s->bytes || s->parts == 1)
        return s->bytes ? t_read_states(m, s->offset, to, (size_t)s->bytes) : TORSHC_OK;
    void *own = malloc((size_t)s->bytes);
    if (!own)
        return t_fail(TORSHC_E_MEMORY, "no memory for a part of %llu bytes", (unsigned long long)s->bytes);
    int status = t_read_states(m, s->offset, own, (size_t)s->bytes);
    if (!status)
        status = P->gather(((t_model *)m)->shared->ranks, own, to, (int64_t)s->bytes);
    free(own);
    return status;
}

int torshc_state_read(torshc_model *m, int32_t index, void *data, size_t bytes) {
    t_model *head = (t_model *)m;
    int status = t_check_alive(m, "torshc_state_read");
    if (status)
        return status;
    if (!is_state(index) || (!data && bytes_of(index)))
        return t_fail(TORSHC_E_ARGUMENT, "torshc_state_read: data is NULL, or state %d of %d", (int)index,
                      (int)P->state_count);
    if (bytes != bytes_of(index))
        return t_fail(TORSHC_E_SHAPE, "torshc_state_read: %zu bytes for state %d, which has %llu", bytes, (int)index,
                      (unsigned long long)bytes_of(index));
    pthread_mutex_lock(&head->lock);
    status = read_state(m, index, data);
    pthread_mutex_unlock(&head->lock);
    return status;
}

/* ---- files ---- */

static void put_little(unsigned char *to, uint64_t value) {
    for (int i = 0; i < 8; i++)
        to[i] = (unsigned char)(value >> 8 * i);
}

static uint64_t get_little(const unsigned char *at) {
    uint64_t value = 0;
    for (int i = 7; i >= 0; i--)
        value = value << 8 | at[i];
    return value;
}

/* FNV-1a. */
static uint64_t digest_of(uint64_t digest, const unsigned char *data, uint64_t bytes) {
    for (uint64_t i = 0; i < bytes; i++)
        digest = (digest ^ data[i]) * UINT64_C(0x100000001b3);
    return digest;
}

static const uint64_t NO_DIGEST = UINT64_C(0xcbf29ce484222325);

static int fail_file(const char *path, const char *what) {
    return t_fail(TORSHC_E_STATE, "state file %.200s: %s: %s", path, what, strerror(errno));
}

static int write_all(int file, const void *data, uint64_t bytes) {
    const unsigned char *at = data;
    while (bytes) {
        const ssize_t done = write(file, at, bytes < (1u << 30) ? (size_t)bytes : (size_t)1 << 30);
        if (done < 0 && errno == EINTR)
            continue;
        if (done <= 0)
            return -1;
        at += done;
        bytes -= (uint64_t)done;
    }
    return 0;
}

static int write_digested(torshc_model *m, const char *path, int file, unsigned char *one) {
    const size_t header = strlen(P->state_header);
    unsigned char length[LENGTH], digest[DIGEST];
    uint64_t found = NO_DIGEST;
    for (int32_t i = 0; i < P->state_count; i++) {
        const int status = read_state(m, i, one);
        if (status)
            return status;
        found = digest_of(found, one, bytes_of(i));
    }
    put_little(length, header);
    put_little(digest, found);
    if (write_all(file, length, LENGTH) || write_all(file, P->state_header, header) || write_all(file, digest, DIGEST))
        return fail_file(path, "cannot be written");
    for (int32_t i = 0; i < P->state_count; i++) {
        const int status = read_state(m, i, one);
        if (status)
            return status;
        if (write_all(file, one, bytes_of(i)))
            return fail_file(path, "cannot be written");
    }
    return fsync(file) ? fail_file(path, "cannot be written") : TORSHC_OK;
}

static int write_states(torshc_model *m, const char *path, int file) {
    uint64_t largest = 1;
    for (int32_t i = 0; i < P->state_count; i++)
        if (bytes_of(i) > largest)
            largest = bytes_of(i);
    unsigned char *one = malloc((size_t)largest);
    if (!one)
        return t_fail(TORSHC_E_MEMORY, "no memory for a state of %llu bytes", (unsigned long long)largest);
    const int status = write_digested(m, path, file, one);
    free(one);
    return status;
}

/* A new file beside `path`, which it is renamed to once it is whole. Where a process was killed its file stays. */
static int create_beside(const char *path, char *name, size_t size) {
    int file = -1;
    for (int k = 0; k < NAMES_MAX && file < 0; k++) {
        snprintf(name, size, "%s.%ld-%d.partial", path, (long)getpid(), k);
        file = open(name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOCTTY, 0666);
        if (file < 0 && errno != EEXIST)
            break;
    }
    return file;
}

/* The renaming is on the disk too. */
static int sync_folder(const char *path, char *name) {
    const char *slash = strrchr(path, '/');
    const size_t length = slash ? (size_t)(slash - path) + 1 : 0;
    memcpy(name, path, length);
    strcpy(name + length, ".");
    const int folder = open(name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (folder < 0)
        return -1;
    const int failed = fsync(folder) && errno != EINVAL; /* some file systems have nothing to do */
    close(folder);
    return failed ? -1 : 0;
}

static int save(torshc_model *m, const char *path, char *name, size_t size) {
    t_model *head = (t_model *)m;
    const int file = create_beside(path, name, size);
    if (file < 0)
        return fail_file(path, "cannot be created");
    pthread_mutex_lock(&head->lock);
    int status = write_states(m, path, file);
    pthread_mutex_unlock(&head->lock);
    const int failed = close(file);
    if (!status && (failed || rename(name, path)))
        status = fail_file(path, "cannot be written");
    if (status)
        unlink(name);
    else if (sync_folder(path, name))
        status = fail_file(path, "is written, and its folder cannot be synced");
    return status;
}

int torshc_state_save(torshc_model *m, const char *path) {
    int status = t_check_alive(m, "torshc_state_save");
    if (status)
        return status;
    if (!path || !*path)
        return t_fail(TORSHC_E_ARGUMENT, "torshc_state_save: path is NULL or empty");
    const size_t size = strlen(path) + 64;
    char *name = malloc(size);
    if (!name)
        return t_fail(TORSHC_E_MEMORY, "no memory for a file name of %zu bytes", size);
    status = save(m, path, name, size);
    free(name);
    return status;
}

/* Up to `bytes` of a file; fewer at its end, -1 when it cannot be read. */
static int64_t read_all(int file, unsigned char *to, uint64_t bytes) {
    uint64_t done = 0;
    while (done < bytes) {
        const uint64_t rest = bytes - done;
        const ssize_t found = read(file, to + done, rest < (1u << 30) ? (size_t)rest : (size_t)1 << 30);
        if (found < 0 && errno == EINTR)
            continue;
        if (found < 0)
            return -1;
        if (!found)
            break;
        done += (uint64_t)found;
    }
    return (int64_t)done;
}

static int refuse_header(const char *path, const unsigned char *header, size_t bytes) {
    const size_t mark = sizeof MARK - 1;
    if (bytes < mark || memcmp(header, MARK, mark) != 0)
        return t_fail(TORSHC_E_STATE, "state file %.200s is none that a library of torshc wrote", path);
    if (bytes >= mark + HASH && !memcmp(header + mark, P->state_header + mark, HASH))
        return t_fail(TORSHC_E_BUILD,
                      "state file %.200s is of this model with other trained weights or another optimizer", path);
    return t_fail(TORSHC_E_BUILD, "state file %.200s is of another model", path);
}

/* What is in the file, `data` with room for all of it and a byte more, must be what this library writes. */
static int check_file(const char *path, const unsigned char *data, uint64_t bytes, uint64_t want) {
    const size_t header = strlen(P->state_header);
    const uint64_t there = bytes < LENGTH ? 0 : bytes - LENGTH;
    const size_t common = there < header ? (size_t)there : header;
    if (common && (get_little(data) != header || memcmp(data + LENGTH, P->state_header, common) != 0))
        return refuse_header(path, data + LENGTH, common);
    if (bytes < want)
        return t_fail(TORSHC_E_STATE, "state file %.200s is truncated: it has %llu of %llu bytes", path,
                      (unsigned long long)bytes, (unsigned long long)want);
    const unsigned char *rest = data + LENGTH + header;
    if (bytes > want || get_little(rest) != digest_of(NO_DIGEST, rest + DIGEST, want - LENGTH - header - DIGEST))
        return t_fail(TORSHC_E_STATE, "state file %.200s is damaged: its digest is not that of its contents", path);
    return TORSHC_OK;
}

static int load(torshc_model *m, const char *path, int file) {
    t_model *head = (t_model *)m;
    const size_t header = strlen(P->state_header);
    uint64_t want = LENGTH + header + DIGEST;
    struct stat found;
    for (int32_t i = 0; i < P->state_count; i++)
        want += bytes_of(i);
    if (fstat(file, &found))
        return fail_file(path, "cannot be read");
    if (!S_ISREG(found.st_mode))
        return t_fail(TORSHC_E_STATE, "state file %.200s is not a regular file", path);
    unsigned char *data = malloc((size_t)want + 1);
    if (!data)
        return t_fail(TORSHC_E_MEMORY, "no memory for %llu bytes of states", (unsigned long long)want);
    const int64_t bytes = read_all(file, data, want + 1);
    int status = bytes < 0 ? fail_file(path, "cannot be read") : check_file(path, data, (uint64_t)bytes, want);
    if (!status) {
        const unsigned char *at = data + LENGTH + header + DIGEST;
        pthread_mutex_lock(&head->lock);
        for (int32_t i = 0; i < P->state_count && !status; at += bytes_of(i++)) {
            const uint64_t bytes = P->state[i].bytes, before = P->state[i].parts > 1 ? bytes * (uint64_t)P->rank : 0;
            if (bytes)
                status = t_write_states(m, P->state[i].offset, at + before, (size_t)bytes);
        }
        pthread_mutex_unlock(&head->lock);
    }
    free(data);
    return status;
}

int torshc_state_load(torshc_model *m, const char *path) {
    int status = t_check_alive(m, "torshc_state_load");
    if (status)
        return status;
    if (!path)
        return t_fail(TORSHC_E_ARGUMENT, "torshc_state_load: path is NULL");
    int file;
    do
        file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY); /* a pipe would wait for a writer */
    while (file < 0 && errno == EINTR);
    if (file < 0)
        return fail_file(path, "cannot be read");
    status = load(m, path, file);
    close(file);
    return status;
}
