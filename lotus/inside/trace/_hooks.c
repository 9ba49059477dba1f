/* The hot path in C, optional: what runs at every sample and every operation (_batch.c: at every
batch).

It does what op_hooks.py does and gives the same rows; native_hooks.py decides whether it is used. A
hook here is no Python frame: it is in no traceback, and no signal handler and no other thread runs
between its steps. It runs nothing of the program but what it times.

One interpreter, with its lock: all state is that of a Gate, which is only used while the lock is
held. Nothing here is built for, or loaded into, a Python without the lock. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <structmember.h>

#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <time.h>

#include "_hooks.h"

#ifdef Py_GIL_DISABLED
#error "made for a Python with its lock"
#endif
#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "the log is little-endian"
#endif

#define VERSION 2 /* of what native_hooks.py calls; it loads no other */

/* ---- Buffer: numbers back to back, with as much of a list's behaviour as the recorder uses ---- */

typedef struct {
    PyObject_HEAD
    int64_t *items;
    Py_ssize_t size, room;
} Buffer;

/* Add a row. Without memory the row is lost, never the program. */
static void add_row(Buffer *self, int64_t first, int64_t second, int64_t third)
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

static void buffer_dealloc(Buffer *self)
{
    PyMem_RawFree(self->items);
    Py_TYPE(self)->tp_free(self);
}

static Py_ssize_t buffer_length(Buffer *self)
{
    return self->size;
}

static PyObject *buffer_tolist(Buffer *self, PyObject *unused)
{
    Py_ssize_t size = self->size; /* making a number may start a collection */
    PyObject *list = PyList_New(0);
    for (Py_ssize_t place = 0; list && place < size && place < self->size; place++) {
        PyObject *number = PyLong_FromLongLong(self->items[place]);
        if (!number || PyList_Append(list, number) < 0)
            Py_CLEAR(list);
        Py_XDECREF(number);
    }
    return list;
}

static PyObject *buffer_subscript(Buffer *self, PyObject *key)
{
    PyObject *list = buffer_tolist(self, NULL);
    PyObject *result = list ? PyObject_GetItem(list, key) : NULL;
    Py_XDECREF(list);
    return result;
}

static int buffer_extend_by(Buffer *self, PyObject *values)
{
    PyObject *row = PySequence_Fast(values, "numbers in rows of three");
    if (!row)
        return -1;
    Py_ssize_t count = PySequence_Fast_GET_SIZE(row);
    if (count % 3) {
        PyErr_SetString(PyExc_ValueError, "numbers in rows of three");
        count = -1;
    }
    for (Py_ssize_t place = 0; place < count; place += 3) {
        int64_t numbers[3];
        for (int column = 0; column < 3; column++)
            numbers[column] = PyLong_AsLongLong(PySequence_Fast_GET_ITEM(row, place + column));
        if (PyErr_Occurred()) {
            count = -1;
            break;
        }
        add_row(self, numbers[0], numbers[1], numbers[2]);
    }
    Py_DECREF(row);
    return count < 0 ? -1 : 0;
}

/* `buffer[:] = numbers`, `del buffer[:]` and `buffer[place] = number`. */
static int buffer_ass_subscript(Buffer *self, PyObject *key, PyObject *value)
{
    if (PySlice_Check(key)) {
        Py_ssize_t start, stop, step;
        if (PySlice_Unpack(key, &start, &stop, &step) < 0)
            return -1;
        if (start != 0 || step != 1 || stop < self->size) {
            PyErr_SetString(PyExc_ValueError, "all of a buffer is replaced, or one number");
            return -1;
        }
        self->size = 0;
        return value ? buffer_extend_by(self, value) : 0;
    }
    Py_ssize_t place = PyNumber_AsSsize_t(key, PyExc_IndexError);
    if (place == -1 && PyErr_Occurred())
        return -1;
    int64_t number = value ? PyLong_AsLongLong(value) : 0;
    if (number == -1 && PyErr_Occurred())
        return -1;
    if (!value || place < 0 || place >= self->size) {
        PyErr_SetString(PyExc_IndexError, "no such place in the buffer");
        return -1;
    }
    self->items[place] = number;
    return 0;
}

static PyObject *buffer_extend(Buffer *self, PyObject *values)
{
    if (buffer_extend_by(self, values) < 0)
        return NULL;
    Py_RETURN_NONE;
}

static PyObject *buffer_iadd(Buffer *self, PyObject *values)
{
    if (buffer_extend_by(self, values) < 0)
        return NULL;
    Py_INCREF(self);
    return (PyObject *)self;
}

static PyObject *buffer_packed(Buffer *self, PyObject *unused)
{
    return PyBytes_FromStringAndSize((char *)self->items, self->size * (Py_ssize_t)sizeof(int64_t));
}

static PyObject *buffer_packed_low(Buffer *self, PyObject *unused)
{
    PyObject *bytes = PyBytes_FromStringAndSize(NULL, self->size * (Py_ssize_t)sizeof(uint32_t));
    char *to = bytes ? PyBytes_AS_STRING(bytes) : NULL;
    for (Py_ssize_t place = 0; to && place < self->size; place++) {
        uint32_t low = (uint32_t)self->items[place];
        memcpy(to + place * (Py_ssize_t)sizeof low, &low, sizeof low);
    }
    return bytes;
}

static PyObject *buffer_longest(Buffer *self, PyObject *unused)
{
    int64_t longest = 0;
    for (Py_ssize_t place = 1; place < self->size; place += 3)
        if (self->items[place] > longest)
            longest = self->items[place];
    return PyLong_FromLongLong(longest);
}

static PyMethodDef buffer_methods[] = {
    {"extend", (PyCFunction)buffer_extend, METH_O, "Add rows of three numbers."},
    {"tolist", (PyCFunction)buffer_tolist, METH_NOARGS, "Return the numbers."},
    {"packed", (PyCFunction)buffer_packed, METH_NOARGS, "Return 8 bytes of each number."},
    {"packed_low", (PyCFunction)buffer_packed_low, METH_NOARGS, "Return the lower 4 of them."},
    {"longest", (PyCFunction)buffer_longest, METH_NOARGS, "Return the largest second number."},
    {NULL, NULL, 0, NULL},
};
static PyMappingMethods buffer_mapping = {
    (lenfunc)buffer_length, (binaryfunc)buffer_subscript, (objobjargproc)buffer_ass_subscript};
static PySequenceMethods buffer_sequence = {
    .sq_length = (lenfunc)buffer_length, .sq_inplace_concat = (binaryfunc)buffer_iadd};
static PyTypeObject BufferType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "_hooks.Buffer",
    .tp_basicsize = sizeof(Buffer),
    .tp_dealloc = (destructor)buffer_dealloc,
    .tp_as_mapping = &buffer_mapping,
    .tp_as_sequence = &buffer_sequence,
    .tp_methods = buffer_methods,
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_doc = "Numbers in rows of three.",
};

/* ---- Gate: what all hooks of a recorder share ---- */

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

static int gate_traverse(Gate *self, visitproc visit, void *arg)
{
    Py_VISIT(self->samples);
    Py_VISIT(self->ops);
    Py_VISIT(self->add_loose);
    Py_VISIT(self->place_of);
    Py_VISIT(self->beside);
    Py_VISIT(self->getitem);
    return 0;
}

/* What hooks need at any time (buffers, page) stays until the end. */
static int gate_clear(Gate *self)
{
    self->shut = 1;
    Py_CLEAR(self->add_loose);
    Py_CLEAR(self->place_of);
    Py_CLEAR(self->beside);
    Py_CLEAR(self->getitem);
    return 0;
}

static void gate_dealloc(Gate *self)
{
    PyObject_GC_UnTrack(self);
    gate_clear(self);
    Py_CLEAR(self->samples);
    Py_CLEAR(self->ops);
    if (self->page.obj)
        PyBuffer_Release(&self->page);
    Py_TYPE(self)->tp_free(self);
}

static PyObject *gate_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"page", "add_loose", "place_of", "beside", "getitem", NULL};
    PyObject *page, *add_loose, *place_of, *beside, *getitem;
    if (!PyArg_ParseTupleAndKeywords(
            args, kwargs, "OOOOO", names, &page, &add_loose, &place_of, &beside, &getitem))
        return NULL;
    Gate *self = (Gate *)type->tp_alloc(type, 0);
    if (!self)
        return NULL;
    if (PyObject_GetBuffer(page, &self->page, PyBUF_WRITABLE) < 0) {
        Py_DECREF(self);
        return NULL;
    }
    self->words = self->page.buf;
    self->samples = PyObject_New(Buffer, &BufferType);
    self->ops = PyObject_New(Buffer, &BufferType);
    for (int which = 0; which < 2; which++) {
        Buffer *buffer = which ? self->ops : self->samples;
        if (buffer) {
            buffer->items = NULL;
            buffer->size = buffer->room = 0;
        }
    }
    if (!self->samples || !self->ops || self->page.len < WORDS * (Py_ssize_t)sizeof(int64_t)) {
        if (!PyErr_Occurred())
            PyErr_SetString(PyExc_ValueError, "the page is too small");
        Py_DECREF(self);
        return NULL;
    }
    Py_INCREF(add_loose);
    Py_INCREF(place_of);
    Py_INCREF(beside);
    Py_INCREF(getitem);
    self->add_loose = add_loose;
    self->place_of = place_of;
    self->beside = beside;
    self->getitem = getitem;
    return (PyObject *)self;
}

/* Put an exception at the end of the contexts of another one, unless it is among them. */
static void add_context(PyObject *last, PyObject *error)
{
    for (int most = 1000; last != error && most; most--) {
        PyObject *context = PyException_GetContext(last);
        if (!context) {
            Py_INCREF(error);
            PyException_SetContext(last, error); /* takes the reference */
            return;
        }
        Py_DECREF(context); /* `last` has another reference */
        last = context;
    }
}

/* Add an operation that has ended; `failed`: with an exception, which stays as it is.

Return -1 if a signal handler of the program raised meanwhile, as in a `finally` of Python. */
static int add_operation(Gate *gate, int64_t start, int64_t end, int64_t number)
{
    if (gate->live == PyThread_get_thread_ident()) {
        add_row(gate->ops, start, end, number);
        return 0;
    }
    if (gate->shut || !gate->add_loose)
        return 0;
    PyObject *kind, *error, *traceback;
    PyErr_Fetch(&kind, &error, &traceback);
    PyObject *add_loose = gate->add_loose;
    Py_INCREF(add_loose);
    PyObject *done = PyObject_CallFunction(
        add_loose, "LLL", (long long)start, (long long)end, (long long)number);
    Py_DECREF(add_loose);
    if (done) {
        Py_DECREF(done);
        PyErr_Restore(kind, error, traceback);
        return 0;
    }
    if (PyErr_ExceptionMatches(PyExc_RecursionError)) { /* no room for our frames: the row is lost */
        PyErr_Clear();
        PyErr_Restore(kind, error, traceback);
        return 0;
    }
    if (kind) { /* the new exception has the other one as its context */
        PyObject *kind2, *error2, *traceback2;
        PyErr_Fetch(&kind2, &error2, &traceback2);
        PyErr_NormalizeException(&kind, &error, &traceback);
        if (traceback)
            PyException_SetTraceback(error, traceback);
        PyErr_NormalizeException(&kind2, &error2, &traceback2);
        add_context(error2, error);
        Py_DECREF(kind);
        Py_DECREF(error);
        Py_XDECREF(traceback);
        PyErr_Restore(kind2, error2, traceback2);
    }
    return -1;
}

static PyObject *gate_add(Gate *self, PyObject *args)
{
    long long start, end, number;
    if (!PyArg_ParseTuple(args, "LLL", &start, &end, &number))
        return NULL;
    if (add_operation(self, start, end, number) < 0)
        return NULL;
    Py_RETURN_NONE;
}

static PyMemberDef gate_members[] = {
    {"owner", T_ULONG, offsetof(Gate, owner), 0, "The thread whose fetch is recorded."},
    {"live", T_ULONG, offsetof(Gate, live), 0, "The thread that is in a sample."},
    {"shut", T_BOOL, offsetof(Gate, shut), 0, "Whether nothing is recorded."},
    {"samples", T_OBJECT_EX, offsetof(Gate, samples), READONLY, "Rows of samples."},
    {"ops", T_OBJECT_EX, offsetof(Gate, ops), READONLY, "Rows of operations."},
    {NULL, 0, 0, 0, NULL},
};
static PyMethodDef gate_methods[] = {
    {"add", (PyCFunction)gate_add, METH_VARARGS, "Add an operation: start, end, number."},
    {NULL, NULL, 0, NULL},
};
static PyTypeObject GateType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "_hooks.Gate",
    .tp_basicsize = sizeof(Gate),
    .tp_new = gate_new,
    .tp_dealloc = (destructor)gate_dealloc,
    .tp_traverse = (traverseproc)gate_traverse,
    .tp_clear = (inquiry)gate_clear,
    .tp_members = gate_members,
    .tp_methods = gate_methods,
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .tp_doc = "What all hooks of a recorder share.",
};

/* ---- Timed: the base of stand-ins, which time the calls of an original ---- */

typedef struct {
    PyObject_HEAD
    vectorcallfunc call;
    Gate *gate;
    PyObject *original;
    int64_t number;
    int word;
} Timed;

static PyObject *timed_call(
    PyObject *object, PyObject *const *args, size_t count, PyObject *names)
{
    Timed *self = (Timed *)object;
    PyObject *original = self->original;
    Gate *gate = self->gate;
    if (!original || !gate) {
        PyErr_SetString(PyExc_ReferenceError, "this transform has been freed");
        return NULL;
    }
    Py_INCREF(original);
    PyObject *result;
    if (gate->shut) {
        result = PyObject_Vectorcall(original, args, count, names);
    } else {
        int64_t number = self->number;
        Py_INCREF(gate);
        int64_t start = read_clock(CLOCK_MONOTONIC);
        gate->words[self->word] = start;
        result = PyObject_Vectorcall(original, args, count, names);
        if (add_operation(gate, start, read_clock(CLOCK_MONOTONIC), number) < 0)
            Py_CLEAR(result);
        Py_DECREF(gate);
    }
    Py_DECREF(original);
    return result;
}

static int timed_traverse(Timed *self, visitproc visit, void *arg)
{
    Py_VISIT(self->gate);
    Py_VISIT(self->original);
    return 0;
}

static int timed_clear(Timed *self)
{
    Py_CLEAR(self->gate);
    Py_CLEAR(self->original);
    return 0;
}

static void timed_dealloc(Timed *self)
{
    PyObject_GC_UnTrack(self);
    timed_clear(self);
    Py_TYPE(self)->tp_free(self);
}

static PyTypeObject TimedType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "_hooks.Timed",
    .tp_basicsize = sizeof(Timed),
    .tp_vectorcall_offset = offsetof(Timed, call),
    .tp_dealloc = (destructor)timed_dealloc,
    .tp_traverse = (traverseproc)timed_traverse,
    .tp_clear = (inquiry)timed_clear,
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_BASETYPE,
    .tp_doc = "Base of stand-ins.",
};

/* time_calls(stand_in, gate, original, number, word): from now on its calls are timed here.

Its class is its own. `__call__` of the class stays, for those who ask for it by name. */
static PyObject *time_calls(PyObject *module, PyObject *args)
{
    Timed *self;
    Gate *gate;
    PyObject *original;
    long long number;
    int word;
    if (!PyArg_ParseTuple(args, "O!O!OLi", &TimedType, &self, &GateType, &gate, &original, &number,
                          &word))
        return NULL;
    PyTypeObject *type = Py_TYPE(self);
    if (word < 0 || word >= WORDS || self->original || type == &TimedType ||
        !(type->tp_flags & Py_TPFLAGS_HEAPTYPE)) {
        PyErr_SetString(PyExc_ValueError, "no stand-in that is not timed yet");
        return NULL;
    }
    Py_INCREF(gate);
    Py_INCREF(original);
    self->gate = gate;
    self->original = original;
    self->number = number;
    self->word = word;
    self->call = timed_call;
    type->tp_vectorcall_offset = offsetof(Timed, call);
    type->tp_flags |= Py_TPFLAGS_HAVE_VECTORCALL;
    PyType_Modified(type);
    Py_RETURN_NONE;
}

/* ---- Samples, Items, Iterator: all that a fetcher uses of a data set ---- */

typedef struct {
    PyObject_HEAD
    Gate *gate;
    PyObject *data;
} Samples;

static int samples_traverse(Samples *self, visitproc visit, void *arg)
{
    Py_VISIT(self->gate);
    Py_VISIT(self->data);
    return 0;
}

static int samples_clear(Samples *self)
{
    Py_CLEAR(self->gate);
    Py_CLEAR(self->data);
    return 0;
}

static void samples_dealloc(Samples *self)
{
    PyObject_GC_UnTrack(self);
    samples_clear(self);
    Py_TYPE(self)->tp_free(self);
}

static PyObject *samples_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    PyObject *gate, *data;
    if (!PyArg_ParseTuple(args, "O!O", &GateType, &gate, &data))
        return NULL;
    Samples *self = (Samples *)type->tp_alloc(type, 0);
    if (self) {
        Py_INCREF(gate);
        Py_INCREF(data);
        self->gate = (Gate *)gate;
        self->data = data;
    }
    return (PyObject *)self;
}

/* What a sample is: how its data is asked for, with which argument. */
enum Way { GETITEM, GETITEMS, NEXT };

static PyObject *ask_for(enum Way way, PyObject *data, PyObject *key)
{
    if (way == GETITEM)
        return PyObject_GetItem(data, key);
    if (way == NEXT) {
        if (PyIter_Check(data))
            return Py_TYPE(data)->tp_iternext(data);
        PyErr_Format(
            PyExc_TypeError, "'%.200s' object is not an iterator", Py_TYPE(data)->tp_name);
        return NULL;
    }
    return PyObject_CallMethod(data, "__getitems__", "(O)", key);
}

/* Write the number of the sample into the page. Return -1 if a handler of the program raised. */
static int show_sample(Gate *gate, PyObject *key)
{
    int64_t place = -1;
    if (key && PyLong_CheckExact(key)) {
        int overflow;
        place = PyLong_AsLongLongAndOverflow(key, &overflow); /* -1 where it does not fit */
    } else if (key && gate->place_of) {
        PyObject *place_of = gate->place_of;
        Py_INCREF(place_of);
        PyObject *number = PyObject_CallFunctionObjArgs(place_of, key, NULL);
        Py_DECREF(place_of);
        if (!number && !PyErr_ExceptionMatches(PyExc_RecursionError))
            return -1;
        place = number ? PyLong_AsLongLong(number) : -1;
        Py_XDECREF(number);
        if (place == -1 && PyErr_Occurred())
            PyErr_Clear();
    }
    gate->words[W_SAMPLE] = place;
    return 0;
}

static PyObject *beside(Gate *gate, enum Way way, PyObject *data, PyObject *key)
{
    PyObject *slow = gate->beside, *result;
    if (!slow || !gate->getitem)
        return ask_for(way, data, key);
    Py_INCREF(slow);
    if (way == GETITEM) {
        result = PyObject_CallFunctionObjArgs(slow, gate->getitem, data, key, NULL);
    } else if (way == NEXT) {
        result = PyObject_CallFunctionObjArgs(slow, Py_None, data, NULL);
    } else {
        PyObject *method = PyObject_GetAttrString(data, "__getitems__");
        result = method ? PyObject_CallFunctionObjArgs(slow, method, key, NULL) : NULL;
        Py_XDECREF(method);
    }
    Py_DECREF(slow);
    return result;
}

static PyObject *sample(Samples *self, enum Way way, PyObject *key)
{
    Gate *gate = self->gate;
    PyObject *data = self->data, *result;
    if (!gate || !data) {
        PyErr_SetString(PyExc_ReferenceError, "this data set has been freed");
        return NULL;
    }
    Py_INCREF(gate);
    Py_INCREF(data);
    unsigned long me = PyThread_get_thread_ident();
    if (gate->shut) {
        result = ask_for(way, data, key);
    } else if (gate->owner != me) {
        result = beside(gate, way, data, key);
    } else if (show_sample(gate, way == GETITEM ? key : NULL) < 0) {
        result = NULL;
    } else {
        unsigned long outer = gate->live;
        Py_ssize_t before = gate->ops->size;
        int64_t start = read_clock(CLOCK_MONOTONIC);
        gate->words[W_SAMPLE_SINCE] = start;
        gate->live = me;
        result = ask_for(way, data, key);
        gate->live = outer;
        /* To find the end of an iterator is no sample. */
        int ended = way == NEXT && !result &&
                    (!PyErr_Occurred() || PyErr_ExceptionMatches(PyExc_StopIteration));
        if (!ended || gate->ops->size > before) {
            int64_t took = read_clock(CLOCK_MONOTONIC) - start;
            add_row(gate->samples, start, took, gate->ops->size / 3);
        }
    }
    Py_DECREF(data);
    Py_DECREF(gate);
    return result;
}

static PyObject *samples_getitem(Samples *self, PyObject *key)
{
    return sample(self, GETITEM, key);
}

static PyObject *items_getitems(Samples *self, PyObject *keys)
{
    return sample(self, GETITEMS, keys);
}

static PyObject *iterator_next(Samples *self)
{
    return sample(self, NEXT, NULL);
}

static PyMemberDef samples_members[] = {
    {"data", T_OBJECT_EX, offsetof(Samples, data), 0, "The data set, or its iterator."},
    {NULL, 0, 0, 0, NULL},
};
static PyMethodDef items_methods[] = {
    {"__getitems__", (PyCFunction)items_getitems, METH_O, "Return the samples of a batch."},
    {NULL, NULL, 0, NULL},
};
static PyMappingMethods samples_mapping = {NULL, (binaryfunc)samples_getitem, NULL};

#define SAMPLES_TYPE(NAME)                                                                         \
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "_hooks." NAME, .tp_basicsize = sizeof(Samples),      \
    .tp_new = samples_new, .tp_dealloc = (destructor)samples_dealloc,                              \
    .tp_traverse = (traverseproc)samples_traverse, .tp_clear = (inquiry)samples_clear,             \
    .tp_members = samples_members, .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,            \
    .tp_doc = "A data set whose samples are timed."

static PyTypeObject SamplesType = {SAMPLES_TYPE("Samples"), .tp_as_mapping = &samples_mapping};
static PyTypeObject ItemsType = {
    SAMPLES_TYPE("Items"), .tp_as_mapping = &samples_mapping, .tp_methods = items_methods};
static PyTypeObject IteratorType = {
    SAMPLES_TYPE("Iterator"), .tp_iter = PyObject_SelfIter,
    .tp_iternext = (iternextfunc)iterator_next};

/* What was built, for tools/bench/hooks.py. */
#if defined(NDEBUG) && defined(__OPTIMIZE__)
#define BUILD "release"
#else
#define BUILD "with assertions or without optimisation"
#endif

static PyMethodDef functions[] = {
    {"time_calls", time_calls, METH_VARARGS, "Time the calls of a stand-in."},
    {NULL, NULL, 0, NULL},
};

/* Run for each interpreter; an init function would only run for the first one. */
static int fill_module(PyObject *module)
{
    if (PyInterpreterState_Get() != PyInterpreterState_Main()) {
        PyErr_SetString(PyExc_ImportError, "not in a subinterpreter");
        return -1;
    }
    struct { const char *name; PyTypeObject *type; } types[] = {
        {"Buffer", &BufferType}, {"Gate", &GateType}, {"Timed", &TimedType},
        {"Samples", &SamplesType}, {"Items", &ItemsType}, {"Iterator", &IteratorType},
    };
    if (add_batch_functions(module) < 0 ||
        PyModule_AddIntConstant(module, "VERSION", VERSION) < 0 ||
        PyModule_AddStringConstant(module, "BUILD", BUILD) < 0)
        return -1;
    TimedType.tp_new = PyBaseObject_Type.tp_new; /* so that object.__new__ makes stand-ins */
    for (size_t place = 0; place < sizeof types / sizeof types[0]; place++) {
        PyTypeObject *type = types[place].type;
        if (PyType_Ready(type) < 0)
            return -1;
        Py_INCREF(type);
        if (PyModule_AddObject(module, types[place].name, (PyObject *)type) < 0) {
            Py_DECREF(type);
            return -1;
        }
    }
    return 0;
}

static PyModuleDef_Slot slots[] = {{Py_mod_exec, fill_module}, {0, NULL}};
static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_hooks", "The hot path in C.", 0, functions, slots, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__hooks(void)
{
    return PyModuleDef_Init(&definition);
}
