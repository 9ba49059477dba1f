/* The hot path in C, optional. This file: what runs at every operation, and the module. _samples.c
runs at every sample, _batch.c at every batch.

It does what sample_hooks.py and op_hooks.py do and gives the same rows; native_hooks.py decides
whether it is used. A hook here is no Python frame: it is in no traceback, and no signal handler and
no other thread runs between its steps. It runs nothing of the program but what it times.

One interpreter, with its lock: all state is that of a Gate, which is only used while the lock is
held. Nothing here is built for, or loaded into, a Python without the lock. */

#include "_hooks.h"

#include <structmember.h>

#ifdef Py_GIL_DISABLED
#error "made for a Python with its lock"
#endif
#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "the log is little-endian"
#endif

#define VERSION 3 /* of what native_hooks.py calls; it loads no other */

/* ---- Gate: what all hooks of a recorder share ---- */

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
    self->samples = new_buffer();
    self->ops = new_buffer();
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
PyTypeObject GateType = {
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
        gate->words[self->word] = 0;
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

/* What was built, for tools/bench/overhead/hooks.py. */
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
