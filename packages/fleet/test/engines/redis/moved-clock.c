/*
 * Preloaded into a server of the tests. The file $MOVED_CLOCK has two numbers, in microseconds: how far the wall clock is
 * ahead, and if it is not 0, the time at which it stands still.
 */

#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static const volatile int64_t *moved;

__attribute__((constructor)) static void map_file(void) {
  const char *path = getenv("MOVED_CLOCK");
  int file = path == NULL ? -1 : open(path, O_RDONLY | O_CLOEXEC);
  if (file < 0) return;
  void *mapped = mmap(NULL, 2 * sizeof(int64_t), PROT_READ, MAP_SHARED, file, 0);
  if (mapped != MAP_FAILED) moved = mapped;
  close(file);
}

static int64_t now_micros(void) {
  if (moved != NULL && moved[1] != 0) return moved[1];
  struct timespec now;
  syscall(SYS_clock_gettime, CLOCK_REALTIME, &now);
  return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000 + (moved == NULL ? 0 : moved[0]);
}

int gettimeofday(struct timeval *restrict time, void *restrict zone) {
  (void)zone;
  int64_t micros = now_micros();
  time->tv_sec = micros / 1000000;
  time->tv_usec = micros % 1000000;
  return 0;
}
