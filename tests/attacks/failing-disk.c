/* Lets calls that reach the files below one directory fail as a broken disk lets them fail.
 *
 * Preloaded into an unchanged program. While a file exists, each line of it names a call and the
 * errno that it fails with; a third word restricts it to paths that contain it:
 *
 *   open 13            any open
 *   create 30 log/     opening for writing
 *   read 5 | write 28 | sync 5
 *
 * What it is not: a disk that loses or changes bytes; a call fails without any effect.
 *
 *   cc -shared -fPIC -O1 -o failing-disk.so failing-disk.c
 *   FAILING_DISK_BELOW=/data FAILING_DISK_WHILE=/tmp/faults LD_PRELOAD=./failing-disk.so program
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

/* Reads the file of faults without the functions that are replaced here. */
static ssize_t read_faults(char *text, size_t size) {
    const char *file = getenv("FAILING_DISK_WHILE");
    if (file == NULL) return -1;
    long descriptor = syscall(SYS_openat, AT_FDCWD, file, O_RDONLY | O_CLOEXEC, 0);
    if (descriptor < 0) return -1;
    ssize_t length = syscall(SYS_read, descriptor, text, size - 1);
    syscall(SYS_close, descriptor);
    if (length >= 0) text[length] = 0;
    return length;
}

/* Returns the errno that this call of this path has to fail with, or 0. */
static int fault(const char *call, const char *path) {
    const char *directory = getenv("FAILING_DISK_BELOW");
    char text[1024], *rest = text, *line;
    size_t length = directory == NULL ? 0 : strlen(directory);
    if (length == 0 || strncmp(path, directory, length) != 0) return 0;
    if (path[length] != 0 && path[length] != '/') return 0;
    if (read_faults(text, sizeof text) <= 0) return 0;
    while ((line = strsep(&rest, "\n")) != NULL) {
        char name[16], part[256] = "";
        int number;
        if (sscanf(line, "%15s %d %255s", name, &number, part) < 2) continue;
        if (strcmp(name, call) == 0 && strstr(path, part) != NULL) return number;
    }
    return 0;
}

static int descriptor_fault(const char *call, int descriptor) {
    char link[64], path[PATH_MAX];
    int before = errno;
    snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
    ssize_t length = readlink(link, path, sizeof path - 1);
    errno = before;
    if (length < 0) return 0;
    path[length] = 0;
    return fault(call, path);
}

#define FAIL_IF(number)        \
    do {                       \
        int failed = (number); \
        if (failed) {          \
            errno = failed;    \
            return -1;         \
        }                      \
    } while (0)

static int open_file(int directory, const char *path, int flags, mode_t mode) {
    FAIL_IF(fault("open", path));
    if ((flags & O_ACCMODE) != O_RDONLY) FAIL_IF(fault("create", path));
    return (int)syscall(SYS_openat, directory, path, flags, mode);
}

#define MODE_OF(flags)                          \
    mode_t mode = 0;                            \
    if ((flags) & (O_CREAT | O_TMPFILE)) {      \
        va_list more;                           \
        va_start(more, flags);                  \
        mode = va_arg(more, mode_t);            \
        va_end(more);                           \
    }

int open(const char *path, int flags, ...) {
    MODE_OF(flags)
    return open_file(AT_FDCWD, path, flags, mode);
}

int open64(const char *path, int flags, ...) {
    MODE_OF(flags)
    return open_file(AT_FDCWD, path, flags, mode);
}

int openat(int directory, const char *path, int flags, ...) {
    MODE_OF(flags)
    return open_file(directory, path, flags, mode);
}

int openat64(int directory, const char *path, int flags, ...) {
    MODE_OF(flags)
    return open_file(directory, path, flags, mode);
}

ssize_t read(int descriptor, void *bytes, size_t length) {
    FAIL_IF(descriptor_fault("read", descriptor));
    return syscall(SYS_read, descriptor, bytes, length);
}

ssize_t pread64(int descriptor, void *bytes, size_t length, off64_t at) {
    FAIL_IF(descriptor_fault("read", descriptor));
    return syscall(SYS_pread64, descriptor, bytes, length, at);
}

ssize_t pread(int descriptor, void *bytes, size_t length, off_t at) {
    return pread64(descriptor, bytes, length, at);
}

ssize_t write(int descriptor, const void *bytes, size_t length) {
    FAIL_IF(descriptor_fault("write", descriptor));
    return syscall(SYS_write, descriptor, bytes, length);
}

ssize_t pwrite64(int descriptor, const void *bytes, size_t length, off64_t at) {
    FAIL_IF(descriptor_fault("write", descriptor));
    return syscall(SYS_pwrite64, descriptor, bytes, length, at);
}

ssize_t pwrite(int descriptor, const void *bytes, size_t length, off_t at) {
    return pwrite64(descriptor, bytes, length, at);
}

ssize_t writev(int descriptor, const struct iovec *parts, int count) {
    FAIL_IF(descriptor_fault("write", descriptor));
    return syscall(SYS_writev, descriptor, parts, count);
}

int fsync(int descriptor) {
    FAIL_IF(descriptor_fault("sync", descriptor));
    return (int)syscall(SYS_fsync, descriptor);
}

int fdatasync(int descriptor) {
    FAIL_IF(descriptor_fault("sync", descriptor));
    return (int)syscall(SYS_fdatasync, descriptor);
}
