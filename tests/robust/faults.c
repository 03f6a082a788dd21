/* Preloaded into a process: calls to the system that concern files below a folder fail from the moment that
 * fault_arm() says, once or from there on. fault_count() tells how many there were. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char below[4096];
static long at = -1, seen;
static int code, lasting;

void fault_arm(const char *folder, long which, int error, int for_good)
{
    snprintf(below, sizeof below, "%s", folder);
    seen = 0;
    at = which;
    code = error;
    lasting = for_good;
}

long fault_count(void) { return seen; }

static int fails(const char *path)
{
    if (!*below || strncmp(path, below, strlen(below)))
        return 0;
    const long now = __atomic_fetch_add(&seen, 1, __ATOMIC_RELAXED);
    if (at < 0 || now < at || (now > at && !lasting))
        return 0;
    errno = code;
    return 1;
}

/* Opening alone runs out of files; reading needs no space and no right to write. */
static int fails_here(int folder, const char *path, int flags)
{
    char whole[8192] = "", link[64];
    const int reads = !(flags & (O_WRONLY | O_RDWR | O_CREAT));
    if (*path != '/' && folder != AT_FDCWD) {
        snprintf(link, sizeof link, "/proc/self/fd/%d", folder);
        const ssize_t n = readlink(link, whole, sizeof whole / 2);
        snprintf(whole + (n > 0 ? n : 0), sizeof whole / 2, "/%s", path);
        path = whole;
    }
    return !(reads && (code == ENOSPC || code == EROFS)) && fails(path);
}

static int fails_at(int fd)
{
    char link[64], path[4096] = "";
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    return code != EMFILE && readlink(link, path, sizeof path - 1) > 0 && fails(path);
}

#define REAL(name) __typeof__(name) *real = (__typeof__(name) *)dlsym(RTLD_NEXT, #name)
#define OPEN(name) \
    int name(const char *path, int flags, ...) \
    { \
        REAL(name); \
        va_list more; \
        va_start(more, flags); \
        const mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(more, mode_t) : 0; \
        va_end(more); \
        return fails_here(AT_FDCWD, path, flags) ? -1 : real(path, flags, mode); \
    }
#define OPENAT(name) \
    int name(int folder, const char *path, int flags, ...) \
    { \
        REAL(name); \
        va_list more; \
        va_start(more, flags); \
        const mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(more, mode_t) : 0; \
        va_end(more); \
        return fails_here(folder, path, flags) ? -1 : real(folder, path, flags, mode); \
    }
OPEN(open)
OPEN(open64)
OPENAT(openat)
OPENAT(openat64)

ssize_t write(int fd, const void *data, size_t bytes)
{
    REAL(write);
    return fails_at(fd) ? -1 : real(fd, data, bytes);
}

ssize_t read(int fd, void *data, size_t bytes)
{
    REAL(read);
    return code == EIO && fails_at(fd) ? -1 : real(fd, data, bytes);
}

int fsync(int fd)
{
    REAL(fsync);
    return fails_at(fd) ? -1 : real(fd);
}

int ftruncate64(int fd, off64_t bytes)
{
    REAL(ftruncate64);
    return fails_at(fd) ? -1 : real(fd, bytes);
}

int mkdir(const char *path, mode_t mode)
{
    REAL(mkdir);
    return code != EMFILE && fails(path) ? -1 : real(path, mode);
}

int rename(const char *from, const char *to)
{
    REAL(rename);
    return code != EMFILE && fails(to) ? -1 : real(from, to);
}

int renameat2(int a, const char *from, int b, const char *to, unsigned flags)
{
    REAL(renameat2);
    return code != EMFILE && fails_here(b, to, O_RDWR) ? -1 : real(a, from, b, to, flags);
}
