/* What a process believes of its clock and its disk. It is preloaded, and told by a file of shim.py's that it maps.

   The wall clock is off, and gains; no fsync returns while they stall; the next one fails if it is to. Clocks that only
   run on are right. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define LOOK_US 5000

struct wall {
  double off_s, gains, since_s;
};
struct told {
  struct wall walls[2]; /* the other one may be half written */
  atomic_int which, stalls, fails;
};

static struct told nothing, *told = &nothing;
static int (*right)(clockid_t, struct timespec *);

__attribute__((constructor)) static void begin(void) {
  right = dlsym(RTLD_NEXT, "clock_gettime");
  const char *name = getenv("FAULTS_SHIM");
  int file = name ? open(name, O_RDWR | O_CLOEXEC) : -1;
  if (file < 0) return;
  void *map = mmap(NULL, sizeof(struct told), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (map != MAP_FAILED) told = map;
  close(file);
}

int clock_gettime(clockid_t clock, struct timespec *now) {
  int failed = right ? right(clock, now) : (int)syscall(SYS_clock_gettime, clock, now);
  if (failed || (clock != CLOCK_REALTIME && clock != CLOCK_REALTIME_COARSE)) return failed;
  struct wall wall = told->walls[told->which & 1];
  double gained_s = wall.gains ? wall.gains * (now->tv_sec + now->tv_nsec / 1e9 - wall.since_s) : 0.0;
  long long off_ns = (long long)((wall.off_s + gained_s) * 1e9) + now->tv_nsec;
  now->tv_sec += off_ns / 1000000000 - (off_ns % 1000000000 < 0);
  now->tv_nsec = (off_ns % 1000000000 + 1000000000) % 1000000000;
  return 0;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
  struct timespec precise;
  (void)zone;
  if (clock_gettime(CLOCK_REALTIME, &precise)) return -1;
  now->tv_sec = precise.tv_sec;
  now->tv_usec = precise.tv_nsec / 1000;
  return 0;
}

time_t time(time_t *at) {
  struct timespec precise;
  clock_gettime(CLOCK_REALTIME, &precise);
  if (at) *at = precise.tv_sec;
  return precise.tv_sec;
}

static int synced(long call, int file) {
  while (told->stalls) usleep(LOOK_US);
  if (atomic_exchange(&told->fails, 0)) return errno = EIO, -1;
  return (int)syscall(call, file);
}

int fsync(int file) { return synced(SYS_fsync, file); }

int fdatasync(int file) { return synced(SYS_fdatasync, file); }
