/* Delays fsync and fdatasync of the files below one directory for as long as a file exists.
 *
 * Preloaded into an unchanged program, it is a disk whose writes are fast and whose cache is slow
 * to reach the medium. What it is not: a disk that fails; every call returns what the kernel says.
 *
 *   cc -shared -fPIC -O1 -o slow-sync.so slow-sync.c
 *   SLOW_SYNC_BELOW=/data SLOW_SYNC_WHILE=/tmp/hold LD_PRELOAD=./slow-sync.so program
 */
#define _GNU_SOURCE
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* Returns whether a descriptor belongs to a file below the directory. */
static int is_below(int descriptor) {
    const char *directory = getenv("SLOW_SYNC_BELOW");
    char link[64], path[PATH_MAX];
    if (directory == NULL) return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length < 0) return 0;
    path[length] = 0;
    return strncmp(path, directory, strlen(directory)) == 0;
}

static void hold(int descriptor) {
    const char *file = getenv("SLOW_SYNC_WHILE");
    const struct timespec pause = {0, 5 * 1000 * 1000};
    int before = errno;
    if (file != NULL && is_below(descriptor))
        while (access(file, F_OK) == 0) nanosleep(&pause, NULL);
    errno = before;
}

int fsync(int descriptor) {
    hold(descriptor);
    return (int)syscall(SYS_fsync, descriptor);
}

int fdatasync(int descriptor) {
    hold(descriptor);
    return (int)syscall(SYS_fdatasync, descriptor);
}
