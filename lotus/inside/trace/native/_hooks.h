/* What the files of the hooks in C share: what a Buffer and a Gate are, and the clock. */

#ifndef LOTUS_HOOKS_H
#define LOTUS_HOOKS_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <stddef.h>
#include <stdint.h>
#include <time.h>

static inline int64_t read_clock(clockid_t which)
{
    struct timespec now;
    clock_gettime(which, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* Numbers back to back, in rows of three. */
typedef struct {
    PyObject_HEAD
    int64_t *items;
    Py_ssize_t size, room;
} Buffer;

/* Add a row. Without memory the row is lost, never the program. */
static inline void add_row(Buffer *self, int64_t first, int64_t second, int64_t third)
{
    if (self->size + 3 > self->room) {
        Py_ssize_t room = self->room ? 2 * self->room : 768;
        int64_t *items = NULL;
        if ((size_t)room <= PY_SSIZE_T_MAX / sizeof(int64_t))
            items = PyMem_RawRealloc(self->items, (size_t)room * sizeof(int64_t));
        if (!items)
            return;
        self->items = items;
        self->room = room;
    }
    int64_t *row = self->items + self->size;
    row[0] = first;
    row[1] = second;
    row[2] = third;
    self->size += 3;
}

/* What all hooks of a recorder share. */
typedef struct {
    PyObject_HEAD
    unsigned long owner; /* as fetch_state.Gate */
    unsigned long live;  /* the thread that is in a sample; 0: none */
    char shut;
    int64_t *words; /* of the state page */
    Py_buffer page;
    Buffer *samples, *ops;
    PyObject *add_loose; /* (start, end, operation): for what `ops` cannot hold */
    PyObject *place_of;  /* (index) -> its number, or -1 */
    PyObject *beside;    /* (function, *args): of a thread that is not the owner */
    PyObject *getitem;   /* operator.getitem, for that */
} Gate;

enum { W_SAMPLE = 8, W_SAMPLE_SINCE = 9, WORDS = 512 }; /* state_page.py; checked at loading */

/* _buffer.c */
extern PyTypeObject BufferType;
Buffer *new_buffer(void);

/* _hooks.c */
extern PyTypeObject GateType;

/* _samples.c */
extern PyTypeObject SamplesType, ItemsType, IteratorType;

/* _batch.c */
int add_batch_functions(PyObject *module);

#endif
