/* System calls that fail on command, for a process that is started with LD_PRELOAD=this.
 *
 * KOUROU_FAILING_CALLS names a file of 4,096 bytes, which the test and the process map:
 *
 *     0     int32 error[16]     by call: the errno to fail with; 0: the call works
 *     64    int32 count[16]     by call: how often it was made to fail
 *     128   char part[256]      only paths that contain this text
 *
 * Calls on descriptors look up the path of the descriptor; msync has none and fails for every mapping of a file.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { OPEN, FSYNC, FDATASYNC, FTRUNCATE, FALLOCATE, RENAME, UNLINK, MSYNC, MKDIR, PWRITE, LINK, MMAP };

struct orders {
    volatile int32_t error[16];
    volatile int32_t count[16];
    char part[256];
};

static struct orders *orders;

static void *next(const char *name) { return dlsym(RTLD_NEXT, name); }

__attribute__((constructor)) static void start(void) {
    const char *path = getenv("KOUROU_FAILING_CALLS");
    int (*open_file)(const char *, int, ...) = next("open");
    int file = path != NULL ? open_file(path, O_RDWR) : -1;
    if (file < 0) return;
    void *(*map)(void *, size_t, int, int, int, off_t) = next("mmap");
    void *found = map(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    if (found != MAP_FAILED) orders = found;
}

static int fails(int call, const char *path) {
    if (orders == NULL || orders->error[call] == 0) return 0;
    if (path != NULL && strstr(path, orders->part) == NULL) return 0;
    __sync_fetch_and_add(&orders->count[call], 1);
    errno = orders->error[call];
    return 1;
}

static int fails_on(int call, int file) {
    char link[64], path[4096];
    if (orders == NULL || orders->error[call] == 0) return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    ssize_t size = readlink(link, path, sizeof path - 1);
    path[size < 0 ? 0 : size] = 0;
    return fails(call, path);
}

#define OPENING(name)                                                   \
    int name(const char *path, int flags, ...) {                        \
        va_list more;                                                   \
        va_start(more, flags);                                          \
        mode_t mode = va_arg(more, mode_t);                             \
        va_end(more);                                                   \
        static int (*real)(const char *, int, ...);                     \
        if (real == NULL) real = next(#name);                           \
        return fails(OPEN, path) ? -1 : real(path, flags, mode);        \
    }
OPENING(open)
OPENING(open64)

#define ON_FILE(call, name, parameters, arguments)                      \
    int name parameters {                                               \
        static int (*real) parameters;                                  \
        if (real == NULL) real = next(#name);                           \
        return fails_on(call, file) ? -1 : real arguments;              \
    }
ON_FILE(FSYNC, fsync, (int file), (file))
ON_FILE(FDATASYNC, fdatasync, (int file), (file))
ON_FILE(FTRUNCATE, ftruncate, (int file, off_t size), (file, size))
ON_FILE(FTRUNCATE, ftruncate64, (int file, off64_t size), (file, size))

#define RESERVING(name)                                                 \
    int name(int file, off_t start, off_t size) {                       \
        static int (*real)(int, off_t, off_t);                          \
        if (real == NULL) real = next(#name);                           \
        return fails_on(FALLOCATE, file) ? errno : real(file, start, size); \
    }
RESERVING(posix_fallocate)
RESERVING(posix_fallocate64)

#define ON_PATH(call, name, parameters, arguments)                      \
    int name parameters {                                               \
        static int (*real) parameters;                                  \
        if (real == NULL) real = next(#name);                           \
        return fails(call, path) ? -1 : real arguments;                 \
    }
ON_PATH(RENAME, rename, (const char *path, const char *to), (path, to))
ON_PATH(UNLINK, unlink, (const char *path), (path))
ON_PATH(MKDIR, mkdir, (const char *path, mode_t mode), (path, mode))
ON_PATH(LINK, link, (const char *path, const char *to), (path, to))

int linkat(int from, const char *path, int at, const char *to, int flags) {
    static int (*real)(int, const char *, int, const char *, int);
    if (real == NULL) real = next("linkat");
    return fails(LINK, path) ? -1 : real(from, path, at, to, flags);
}

#define WRITING(name)                                                   \
    ssize_t name(int file, const void *data, size_t size, off_t at) {   \
        static ssize_t (*real)(int, const void *, size_t, off_t);       \
        if (real == NULL) real = next(#name);                           \
        return fails_on(PWRITE, file) ? -1 : real(file, data, size, at); \
    }
WRITING(pwrite)
WRITING(pwrite64)

int msync(void *address, size_t size, int flags) {
    static int (*real)(void *, size_t, int);
    if (real == NULL) real = next("msync");
    return fails(MSYNC, NULL) ? -1 : real(address, size, flags);
}

#define MAPPING(name)                                                                       \
    void *name(void *address, size_t size, int protection, int flags, int file, off_t at) { \
        static void *(*real)(void *, size_t, int, int, int, off_t);                         \
        if (real == NULL) real = next(#name);                                               \
        if (file >= 0 && fails_on(MMAP, file)) return MAP_FAILED;                           \
        return real(address, size, protection, flags, file, at);                            \
    }
MAPPING(mmap)
MAPPING(mmap64)
