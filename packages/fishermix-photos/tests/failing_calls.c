/* A disk whose system calls fail, for one process: LD_PRELOAD this. `fail_calls` chooses which of the following
   calls on files below a folder fail, and how: calls of some kinds (1 open, 2 read, 4 write, 8 fsync, 16 rename,
   32 stat), from the first to the last, counted from 1. The error -1 kills the process instead. It returns how many
   calls of these kinds there were before. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

enum { OPEN = 1, READ = 2, WRITE = 4, FSYNC = 8, RENAME = 16, STAT = 32 };
static char below[4096] = "/";
static int count, kinds, first, last, error;

int fail_calls(const char *folder, int new_kinds, int new_first, int new_last, int new_error) {
    int before = count;
    snprintf(below, sizeof below, "%s", folder);
    count = 0; kinds = new_kinds; first = new_first; last = new_last; error = new_error;
    return before;
}
static int fails(int kind, const char *path) {
    if (!(kinds & kind) || strncmp(path, below, strlen(below))) return 0;
    count++;
    if (count < first || count > last) return 0;
    if (error < 0) raise(SIGKILL);
    errno = error;
    return 1;
}
static int fails_on(int kind, int fd) {
    char link[64], path[4096];
    if (!(kinds & kind)) return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length <= 0) return 0;
    path[length] = 0;
    return fails(kind, path);
}
#define NEXT(type, name, ...) ((type (*)(__VA_ARGS__))dlsym(RTLD_NEXT, name))

#define DEFINE_OPEN(name)                                                                  \
    int name(const char *path, int flags, ...) {                                           \
        va_list rest; va_start(rest, flags); int mode = va_arg(rest, int); va_end(rest);   \
        return fails(OPEN, path) ? -1 : NEXT(int, #name, const char *, int, int)(path, flags, mode); \
    }
#define DEFINE_OPENAT(name)                                                                \
    int name(int at, const char *path, int flags, ...) {                                   \
        va_list rest; va_start(rest, flags); int mode = va_arg(rest, int); va_end(rest);   \
        return fails(OPEN, path) ? -1 : NEXT(int, #name, int, const char *, int, int)(at, path, flags, mode); \
    }
#define DEFINE_SYNC(name) \
    int name(int fd) { return fails_on(FSYNC, fd) ? -1 : NEXT(int, #name, int)(fd); }
#define DEFINE_AT(name, kind, pointer, offset_type)                                         \
    ssize_t name(int fd, pointer data, size_t size, offset_type at) {                       \
        if (fails_on(kind, fd)) return -1;                                                  \
        return NEXT(ssize_t, #name, int, pointer, size_t, offset_type)(fd, data, size, at); \
    }
#define DEFINE_STAT(name, type)                                                             \
    int name(const char *path, struct type *found) {                                        \
        return fails(STAT, path) ? -1 : NEXT(int, #name, const char *, struct type *)(path, found); \
    }
DEFINE_STAT(stat, stat)
DEFINE_STAT(stat64, stat64)
DEFINE_STAT(lstat, stat)
DEFINE_STAT(lstat64, stat64)
DEFINE_OPEN(open)
DEFINE_OPEN(open64)
DEFINE_OPENAT(openat)
DEFINE_OPENAT(openat64)
DEFINE_SYNC(fsync)
DEFINE_SYNC(fdatasync)
DEFINE_AT(pread, READ, void *, off_t)
DEFINE_AT(pread64, READ, void *, off64_t)
DEFINE_AT(pwrite, WRITE, const void *, off_t)
DEFINE_AT(pwrite64, WRITE, const void *, off64_t)

ssize_t read(int fd, void *data, size_t size) {
    return fails_on(READ, fd) ? -1 : NEXT(ssize_t, "read", int, void *, size_t)(fd, data, size);
}
ssize_t write(int fd, const void *data, size_t size) {
    return fails_on(WRITE, fd) ? -1 : NEXT(ssize_t, "write", int, const void *, size_t)(fd, data, size);
}
int rename(const char *from, const char *to) {
    return fails(RENAME, from) ? -1 : NEXT(int, "rename", const char *, const char *)(from, to);
}
