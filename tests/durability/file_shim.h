/* File operations of this process, counted, made to fail, and logged: for tests of what a crash leaves.
 *
 * The library stands before the C library, so that every call of open, write, rename and so on passes through it. It
 * looks at paths below one folder only; all else goes straight on. State is the process's own: a fork copies it. */
#pragma once

#ifdef __cplusplus
extern "C" {
#endif

enum shim_fault {
  SHIM_NONE,
  SHIM_KILL_BEFORE, /* SIGKILL instead of the operation */
  SHIM_KILL_AFTER,  /* SIGKILL when it is done */
  SHIM_EIO,         /* it fails, and does nothing */
  SHIM_ENOSPC,
  SHIM_SHORT,        /* writes: half of the bytes, and the call says so */
  SHIM_SHORT_ENOSPC, /* writes: half of the bytes, then the disk is full: this call and all later writes fail */
  SHIM_SHORT_KILL    /* writes: half of the bytes, then SIGKILL */
};

/* What is logged, one record for each operation that changed something, in order. A record is this header and then
 * path_bytes, target_bytes and data_bytes bytes. `object` is the file's or folder's inode number. */
enum shim_record_kind {
  SHIM_CREATE = 1, /* path, object */
  SHIM_MKDIR,      /* path, object */
  SHIM_WRITE,      /* object, offset, data */
  SHIM_RESIZE,     /* object, offset: the new size, if larger or exact */
  SHIM_FSYNC,      /* object */
  SHIM_RENAME,     /* path, target */
  SHIM_REMOVE      /* path */
};
struct shim_record {
  unsigned kind, path_bytes, target_bytes, exact;
  unsigned long object, offset, data_bytes;
};

/* Counts operations below `root` from now on. The `nth` one (from 0) meets `fault`. With log_fd >= 0 records go there.
 */
void shim_arm(const char* root, enum shim_fault fault, long nth, int log_fd);
/* Counts no more. Returns how many operations there were. */
long shim_disarm(void);
/* What kind of operation number `n` was: 'w' a write that may be short, 'o' another; 0 beyond the end or what is kept.
 */
char shim_kind(long n);

#ifdef __cplusplus
}
#endif
