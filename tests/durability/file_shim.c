#define _GNU_SOURCE
#include "file_shim.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

enum { kMaxFds = 1024, kMaxKinds = 4096 };

static char root[PATH_MAX];
static int log_fd = -1;
static enum shim_fault fault;
static long fault_at;
static atomic_long count;
static atomic_int disk_full;
static char kinds[kMaxKinds];
static char watched[kMaxFds]; /* descriptors below the root */

#define REAL(name) ((__typeof__(&name))real_of(#name))
static void* real_of(const char* name) {
  void* found = dlsym(RTLD_NEXT, name);
  if (found == NULL) abort();
  return found;
}

void shim_arm(const char* folder, enum shim_fault what, long nth, int log) {
  snprintf(root, sizeof root, "%s", folder);
  fault = what;
  fault_at = nth;
  log_fd = log;
  count = 0;
  disk_full = 0;
  memset(kinds, 0, sizeof kinds);
}

long shim_disarm(void) {
  root[0] = 0;
  return count;
}

char shim_kind(long n) { return n >= 0 && n < count && n < kMaxKinds ? kinds[n] : 0; }

static int below(const char* path) {
  size_t length = strlen(root);
  return length > 0 && strncmp(path, root, length) == 0 && (path[length] == 0 || path[length] == '/');
}
static int is_watched(int fd) { return root[0] != 0 && fd >= 0 && fd < kMaxFds && watched[fd]; }
static void watch(int fd, int yes) {
  if (fd >= 0 && fd < kMaxFds) watched[fd] = (char)yes;
}

static void die(void) {
  raise(SIGKILL);
  for (;;) pause();
}

/* Before operation: 0 to go on, or an errno. `now` tells what else the fault asks for. */
static int enter(char kind, enum shim_fault* now) {
  long mine = atomic_fetch_add(&count, 1);
  if (mine < kMaxKinds) kinds[mine] = kind;
  *now = mine == fault_at ? fault : SHIM_NONE;
  if (kind == 'w' && disk_full) return ENOSPC;
  if (*now == SHIM_KILL_BEFORE) die();
  if (*now == SHIM_EIO) return EIO;
  if (*now == SHIM_ENOSPC) return ENOSPC;
  return 0;
}
static void leave(enum shim_fault now) {
  if (now == SHIM_KILL_AFTER) die();
}

static void record(unsigned kind, const char* path, const char* target, unsigned long object, unsigned long offset,
                   const void* data, unsigned long bytes, unsigned exact) {
  if (log_fd < 0) return;
  struct shim_record head = {
      kind, path ? (unsigned)strlen(path) : 0, target ? (unsigned)strlen(target) : 0, exact, object, offset, bytes};
  struct iovec parts[4] = {
      {&head, sizeof head}, {(void*)path, head.path_bytes}, {(void*)target, head.target_bytes}, {(void*)data, bytes}};
  int saved = errno;
  if (writev(log_fd, parts, 4) < 0) abort();
  errno = saved;
}
static unsigned long object_of(int fd) {
  struct stat info;
  return fstat(fd, &info) == 0 ? info.st_ino : 0;
}

/* One operation that yields -1 and errno when it fails. */
#define OPERATION(kind, call, log)    \
  do {                                \
    enum shim_fault now;              \
    int error = enter(kind, &now);    \
    if (error != 0) {                 \
      errno = error;                  \
      return -1;                      \
    }                                 \
    __typeof__(call) result = (call); \
    if (result >= 0) {                \
      log;                            \
    }                                 \
    leave(now);                       \
    return result;                    \
  } while (0)

static int opened(int result, const char* path, int flags, int existed) {
  watch(result, result >= 0);
  if (result >= 0 && (flags & O_CREAT) && !existed) record(SHIM_CREATE, path, NULL, object_of(result), 0, NULL, 0, 0);
  return result;
}

static int open_common(const char* name, const char* path, int flags, mode_t mode) {
  int (*real)(const char*, int, ...) = (int (*)(const char*, int, ...))real_of(name);
  if (!below(path)) {
    int fd = real(path, flags, mode);
    watch(fd, 0);
    return fd;
  }
  struct stat info;
  int existed = lstat(path, &info) == 0;
  OPERATION('o', opened(real(path, flags, mode), path, flags, existed), (void)0);
}

int open(const char* path, int flags, ...) {
  va_list list;
  va_start(list, flags);
  mode_t mode = (flags & (O_CREAT | O_TMPFILE)) ? va_arg(list, mode_t) : 0;
  va_end(list);
  return open_common("open", path, flags, mode);
}
int open64(const char* path, int flags, ...) {
  va_list list;
  va_start(list, flags);
  mode_t mode = (flags & (O_CREAT | O_TMPFILE)) ? va_arg(list, mode_t) : 0;
  va_end(list);
  return open_common("open64", path, flags, mode);
}

DIR* opendir(const char* path) {
  if (!below(path)) return REAL(opendir)(path);
  enum shim_fault now;
  int error = enter('o', &now);
  if (error != 0) {
    errno = error;
    return NULL;
  }
  DIR* result = REAL(opendir)(path);
  leave(now);
  return result;
}

int mkdir(const char* path, mode_t mode) {
  if (!below(path)) return REAL(mkdir)(path, mode);
  struct stat info;
  OPERATION('o', REAL(mkdir)(path, mode),
            record(SHIM_MKDIR, path, NULL, stat(path, &info) == 0 ? info.st_ino : 0, 0, NULL, 0, 0));
}
int rename(const char* from, const char* to) {
  if (!below(from)) return REAL(rename)(from, to);
  OPERATION('o', REAL(rename)(from, to), record(SHIM_RENAME, from, to, 0, 0, NULL, 0, 0));
}
int unlink(const char* path) {
  if (!below(path)) return REAL(unlink)(path);
  OPERATION('o', REAL(unlink)(path), record(SHIM_REMOVE, path, NULL, 0, 0, NULL, 0, 0));
}
int rmdir(const char* path) {
  if (!below(path)) return REAL(rmdir)(path);
  OPERATION('o', REAL(rmdir)(path), record(SHIM_REMOVE, path, NULL, 0, 0, NULL, 0, 0));
}
int remove(const char* path) {
  if (!below(path)) return REAL(remove)(path);
  OPERATION('o', REAL(remove)(path), record(SHIM_REMOVE, path, NULL, 0, 0, NULL, 0, 0));
}

int flock(int fd, int operation) {
  if (!is_watched(fd)) return REAL(flock)(fd, operation);
  OPERATION('o', REAL(flock)(fd, operation), (void)0);
}
int fsync(int fd) {
  if (!is_watched(fd)) return REAL(fsync)(fd);
  OPERATION('o', REAL(fsync)(fd), record(SHIM_FSYNC, NULL, NULL, object_of(fd), 0, NULL, 0, 0));
}
int ftruncate(int fd, off_t size) {
  if (!is_watched(fd)) return REAL(ftruncate)(fd, size);
  OPERATION('o', REAL(ftruncate)(fd, size),
            record(SHIM_RESIZE, NULL, NULL, object_of(fd), (unsigned long)size, NULL, 0, 1));
}
int ftruncate64(int fd, off64_t size) { return ftruncate(fd, size); }
int fallocate(int fd, int mode, off_t offset, off_t size) {
  if (!is_watched(fd)) return REAL(fallocate)(fd, mode, offset, size);
  OPERATION('o', REAL(fallocate)(fd, mode, offset, size),
            record(SHIM_RESIZE, NULL, NULL, object_of(fd), (unsigned long)(offset + size), NULL, 0, 0));
}
int fallocate64(int fd, int mode, off64_t offset, off64_t size) { return fallocate(fd, mode, offset, size); }

/* at < 0: at the descriptor's position. */
static ssize_t write_common(int fd, const void* data, size_t bytes, off_t at) {
  off_t offset = at >= 0 ? at : lseek(fd, 0, SEEK_CUR);
  enum shim_fault now;
  int error = enter('w', &now);
  if (error == 0 && now >= SHIM_SHORT) bytes = (bytes + 1) / 2;
  ssize_t result = -1;
  if (error == 0) {
    result = REAL(pwrite)(fd, data, bytes, offset);
    if (result > 0) {
      record(SHIM_WRITE, NULL, NULL, object_of(fd), (unsigned long)offset, data, (unsigned long)result, 0);
      if (at < 0) lseek(fd, offset + result, SEEK_SET);
    }
    if (now == SHIM_SHORT_KILL) die();
    if (now == SHIM_SHORT_ENOSPC) disk_full = 1;
  } else {
    errno = error;
  }
  leave(now);
  return result;
}
ssize_t write(int fd, const void* data, size_t bytes) {
  if (!is_watched(fd)) return REAL(write)(fd, data, bytes);
  return write_common(fd, data, bytes, -1);
}
ssize_t pwrite(int fd, const void* data, size_t bytes, off_t at) {
  if (!is_watched(fd)) return REAL(pwrite)(fd, data, bytes, at);
  return write_common(fd, data, bytes, at);
}
ssize_t pwrite64(int fd, const void* data, size_t bytes, off64_t at) { return pwrite(fd, data, bytes, at); }

ssize_t pread(int fd, void* data, size_t bytes, off_t at) {
  if (!is_watched(fd)) return REAL(pread)(fd, data, bytes, at);
  OPERATION('o', REAL(pread)(fd, data, bytes, at), (void)0);
}
ssize_t pread64(int fd, void* data, size_t bytes, off64_t at) { return pread(fd, data, bytes, at); }

int close(int fd) {
  watch(fd, 0);
  return REAL(close)(fd);
}
