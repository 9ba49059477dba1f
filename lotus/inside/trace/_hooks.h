/* What the two files of the hooks in C share. */

#include <stdint.h>
#include <time.h>

static inline int64_t read_clock(clockid_t which)
{
    struct timespec now;
    clock_gettime(which, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

int add_batch_functions(PyObject *module); /* _batch.c */
