/* How long a cache line takes from one core to another and back.
 *
 *     cc -O2 -pthread core_distance.c -o core_distance; ./core_distance CPU CPU
 *
 * Two threads, each pinned to its CPU, take turns in counting up one number. Prints the nanoseconds
 * of a round trip: some 60 to 130 where both share a last cache, 300 and more where they do not.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define TURNS 20000

static _Alignas(128) atomic_int count;
static int cpus[2];

static void *turns(void *argument)
{
    int mine = (int)(long)argument;
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cpus[mine], &set);
    pthread_setaffinity_np(pthread_self(), sizeof set, &set);
    for (int turn = mine; turn < 2 * TURNS; turn += 2) {
        while (atomic_load_explicit(&count, memory_order_acquire) != turn)
            ;
        atomic_store_explicit(&count, turn + 1, memory_order_release);
    }
    return NULL;
}

int main(int words, char **word)
{
    if (words != 3)
        return 2;
    cpus[0] = atoi(word[1]);
    cpus[1] = atoi(word[2]);
    pthread_t first, second;
    struct timespec began, ended;
    clock_gettime(CLOCK_MONOTONIC, &began);
    pthread_create(&first, NULL, turns, (void *)0L);
    pthread_create(&second, NULL, turns, (void *)1L);
    pthread_join(first, NULL);
    pthread_join(second, NULL);
    clock_gettime(CLOCK_MONOTONIC, &ended);
    double ns = 1e9 * (ended.tv_sec - began.tv_sec) + (ended.tv_nsec - began.tv_nsec);
    printf("%.0f\n", ns / TURNS);
    return 0;
}
