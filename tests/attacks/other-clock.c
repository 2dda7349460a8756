/* Moves the wall clock of a program by OTHER_CLOCK_S seconds. Its monotonic clock goes on as it is.
 *
 * Preloaded into an unchanged program, it is a machine whose clock was set wrongly before the program
 * began. What it is not: a clock that is set while the program runs.
 *
 *   cc -shared -fPIC -O1 -o other-clock.so other-clock.c
 *   OTHER_CLOCK_S=10800 LD_PRELOAD=./other-clock.so program
 */
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static long offset(void) {
    const char *seconds = getenv("OTHER_CLOCK_S");
    return seconds == NULL ? 0 : atol(seconds);
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    int failed = (int)syscall(SYS_clock_gettime, clock, now);
    if (!failed && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) now->tv_sec += offset();
    return failed;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    int failed = (int)syscall(SYS_gettimeofday, now, zone);
    if (!failed && now != NULL) now->tv_sec += offset();
    return failed;
}

time_t time(time_t *now) {
    struct timespec at;
    clock_gettime(CLOCK_REALTIME, &at);
    if (now != NULL) *now = at.tv_sec;
    return at.tv_sec;
}
