/* Loops whose instructions, branches and misses follow from their text, and the cost of readings.
   x86-64 only. Compiled by known_loops.py; each loop takes the number of its rounds. */

#include <linux/perf_event.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

/* A round: 8 dependent additions, a subtraction, a taken branch. 10 instructions, 1 branch. */
void additions(long rounds) {
    long sum = 0;
    __asm__ volatile("1:\n\t"
                     ".rept 8\n\tadd $1, %1\n\t.endr\n\t"
                     "sub $1, %0\n\tjnz 1b"
                     : "+r"(rounds), "+r"(sum) : : "cc");
}

/* A round: 14 instructions that do nothing, a subtraction, a taken branch. 16 and 1. */
void nothing(long rounds) {
    __asm__ volatile("1:\n\t"
                     ".rept 14\n\tnop\n\t.endr\n\t"
                     "sub $1, %0\n\tjnz 1b"
                     : "+r"(rounds) : : "cc");
}

static uint8_t *coins;
static long number_of_coins;

/* Fills `count` bytes with 0 or 1; returns how many are 1. */
long toss(long count, uint64_t seed) {
    long heads = 0;
    free(coins);
    coins = malloc(count);
    number_of_coins = coins ? count : 0;
    for (long i = 0; i < number_of_coins; i++) {
        seed ^= seed << 13, seed ^= seed >> 7, seed ^= seed << 17; /* xorshift64 */
        coins[i] = seed >> 40 & 1;
        heads += coins[i];
    }
    return heads;
}

/* A round: a coin is compared, a branch taken where it is 0, else one addition more.
   5 instructions and 1 more a head, 2 branches, half of the first mispredicted. */
void guesses(long rounds) {
    uint8_t *coin = coins;
    long sum = 0;
    __asm__ volatile("1:\n\t"
                     "cmpb $0, (%1)\n\tje 2f\n\tadd $1, %2\n\t"
                     "2:\n\tadd $1, %1\n\tsub $1, %0\n\tjnz 1b"
                     : "+r"(rounds), "+r"(coin), "+r"(sum) : : "cc", "memory");
}

static void **ring;

/* Makes a ring of `lines` cache lines of 64 bytes in random order. 0 where memory is short. */
int make_ring(long lines, uint64_t seed) {
    long *order = malloc(lines * sizeof *order);
    char *memory = mmap(NULL, lines * 64, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (!order || memory == MAP_FAILED)
        return 0;
    madvise(memory, lines * 64, MADV_NOHUGEPAGE);
    for (long i = 0; i < lines; i++)
        order[i] = i;
    for (long i = lines - 1; i > 0; i--) {
        seed ^= seed << 13, seed ^= seed >> 7, seed ^= seed << 17;
        long j = seed % (i + 1), kept = order[i];
        order[i] = order[j], order[j] = kept;
    }
    for (long i = 0; i < lines; i++)
        *(void **)(memory + order[i] * 64) = memory + order[(i + 1) % lines] * 64;
    free(order);
    ring = (void **)memory;
    return 1;
}

/* A round: the address of the next line is loaded from this one. 3 instructions, 1 branch, and a
   miss of each cache that is much smaller than the ring. */
void chase(long rounds) {
    void **line = ring;
    __asm__ volatile("1:\n\tmov (%1), %1\n\tsub $1, %0\n\tjnz 1b"
                     : "+r"(rounds), "+r"(line) : : "cc", "memory");
}

static double seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec + now.tv_nsec * 1e-9;
}

/* Nanoseconds of one read(2) of a group. */
double read_ns(int fd, long times, long size) {
    char buffer[1024];
    double begin = seconds();
    for (long i = 0; i < times; i++)
        if (read(fd, buffer, size) < 0)
            return -1;
    return (seconds() - begin) / times * 1e9;
}

/* Nanoseconds of one rdpmc of the counter behind `fd`; -1 where the kernel does not allow it. */
double rdpmc_ns(int fd, long times) {
    volatile struct perf_event_mmap_page *page =
        mmap(NULL, sysconf(_SC_PAGESIZE), PROT_READ, MAP_SHARED, fd, 0);
    double result = -1;
    if (page == MAP_FAILED)
        return -1;
    if (page->cap_user_rdpmc && page->index) {
        double begin = seconds();
        for (long i = 0; i < times; i++) {
            uint32_t low, high, index = page->index;
            if (!index)
                break;
            __asm__ volatile("rdpmc" : "=a"(low), "=d"(high) : "c"(index - 1));
        }
        result = (seconds() - begin) / times * 1e9;
    }
    munmap((void *)page, sysconf(_SC_PAGESIZE));
    return result;
}
