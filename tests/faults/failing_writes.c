/* Makes the nth write of a command fail, in whichever of its processes that happens.

   Loaded with LD_PRELOAD. What is to fail stands in a file that all processes map, named by
   FAULTS_CONTROL: see failing_writes.py. Only calls below one folder count, so that Python's own
   caches, pipes and terminals are left alone. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#define TEXT 4096

struct control {
    long is_on;
    long count;      /* of writes so far */
    long fail_at;    /* 0: none, only count */
    long error;      /* the errno */
    long stays;      /* every later one fails too */
    char root[TEXT]; /* without a link in it */
    char failed[TEXT];
};

static struct control *control(void) {
    static struct control *page;
    if (!page) {
        const char *path = getenv("FAULTS_CONTROL");
        int (*real)(const char *, int, ...) = dlsym(RTLD_NEXT, "open");
        int file = path ? real(path, O_RDWR | O_CLOEXEC) : -1;
        void *found = MAP_FAILED;
        if (file >= 0) {
            found = mmap(NULL, sizeof *page, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
            close(file);
        }
        if (found == MAP_FAILED) {
            static struct control off;
            found = &off;
        }
        page = found;
    }
    return page;
}

/* Whether this call shall fail; errno is set then. */
static int fails(const char *what, const char *path) {
    struct control *c = control();
    size_t length = strlen(c->root);
    if (!c->is_on || !length || strncmp(path, c->root, length)) return 0;
    if (strstr(path, "__pycache__")) return 0;
    long number = __sync_add_and_fetch(&c->count, 1);
    if (!c->fail_at || number < c->fail_at || (number > c->fail_at && !c->stays)) return 0;
    if (number == c->fail_at) snprintf(c->failed, TEXT, "%s %s", what, path + length);
    errno = (int)c->error;
    return 1;
}

static int path_fails(const char *what, int folder, const char *path) {
    char whole[2 * TEXT];
    if (!control()->is_on || !path) return 0;
    if (path[0] == '/') return fails(what, path);
    if (folder == AT_FDCWD) {
        if (!getcwd(whole, TEXT)) return 0;
    } else {
        char link[64];
        snprintf(link, sizeof link, "/proc/self/fd/%d", folder);
        ssize_t got = readlink(link, whole, TEXT - 1);
        if (got < 0) return 0;
        whole[got] = 0;
    }
    size_t used = strlen(whole);
    snprintf(whole + used, sizeof whole - used, "/%s", path);
    return fails(what, whole);
}

static int file_fails(const char *what, int file) {
    char link[64], path[TEXT];
    if (!control()->is_on || file < 0) return 0;
    int before = errno;
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    ssize_t got = readlink(link, path, TEXT - 1);
    errno = before;
    if (got < 0) return 0;
    path[got] = 0;
    return fails(what, path);
}

#define REAL(name) \
    static __typeof__(name) *real; \
    if (!real) real = dlsym(RTLD_NEXT, #name)

#define OPEN(name) \
    int name(const char *path, int flags, ...) { \
        REAL(name); \
        va_list more; \
        va_start(more, flags); \
        mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(more, mode_t) : 0; \
        va_end(more); \
        if ((flags & (O_WRONLY | O_RDWR | O_CREAT)) && path_fails("open", AT_FDCWD, path)) \
            return -1; \
        return real(path, flags, mode); \
    }

#define OPENAT(name) \
    int name(int folder, const char *path, int flags, ...) { \
        REAL(name); \
        va_list more; \
        va_start(more, flags); \
        mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(more, mode_t) : 0; \
        va_end(more); \
        if ((flags & (O_WRONLY | O_RDWR | O_CREAT)) && path_fails("open", folder, path)) \
            return -1; \
        return real(folder, path, flags, mode); \
    }

OPEN(open)
OPEN(open64)
OPENAT(openat)
OPENAT(openat64)

ssize_t write(int file, const void *data, size_t size) {
    REAL(write);
    return file_fails("write", file) ? -1 : real(file, data, size);
}

ssize_t pwrite64(int file, const void *data, size_t size, off64_t offset) {
    REAL(pwrite64);
    return file_fails("write", file) ? -1 : real(file, data, size, offset);
}

ssize_t writev(int file, const struct iovec *data, int count) {
    REAL(writev);
    return file_fails("write", file) ? -1 : real(file, data, count);
}

int fsync(int file) {
    REAL(fsync);
    return file_fails("fsync", file) ? -1 : real(file);
}

int ftruncate64(int file, off64_t size) {
    REAL(ftruncate64);
    return file_fails("truncate", file) ? -1 : real(file, size);
}

int rename(const char *from, const char *to) {
    REAL(rename);
    return path_fails("rename", AT_FDCWD, to) ? -1 : real(from, to);
}

int renameat(int from_folder, const char *from, int to_folder, const char *to) {
    REAL(renameat);
    return path_fails("rename", to_folder, to) ? -1 : real(from_folder, from, to_folder, to);
}

int mkdir(const char *path, mode_t mode) {
    REAL(mkdir);
    return path_fails("mkdir", AT_FDCWD, path) ? -1 : real(path, mode);
}

int mkdirat(int folder, const char *path, mode_t mode) {
    REAL(mkdirat);
    return path_fails("mkdir", folder, path) ? -1 : real(folder, path, mode);
}
