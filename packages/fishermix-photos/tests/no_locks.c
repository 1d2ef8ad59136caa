/* A file system without locks, for one process: LD_PRELOAD this. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>

static int refuse(int fd, int command, void *argument, const char *name) {
    if (command == F_SETLK || command == F_SETLKW) { errno = ENOLCK; return -1; }
    int (*next)(int, int, void *) = dlsym(RTLD_NEXT, name);
    return next(fd, command, argument);
}
int fcntl(int fd, int command, ...) {
    va_list list; va_start(list, command); void *argument = va_arg(list, void *); va_end(list);
    return refuse(fd, command, argument, "fcntl");
}
int fcntl64(int fd, int command, ...) {
    va_list list; va_start(list, command); void *argument = va_arg(list, void *); va_end(list);
    return refuse(fd, command, argument, "fcntl64");
}
