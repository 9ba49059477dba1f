/* All that a fetcher uses of a data set, in C: each sample that it asks for is timed. */

#include "_hooks.h"

#include <structmember.h>

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

PyTypeObject SamplesType = {SAMPLES_TYPE("Samples"), .tp_as_mapping = &samples_mapping};
PyTypeObject ItemsType = {
    SAMPLES_TYPE("Items"), .tp_as_mapping = &samples_mapping, .tp_methods = items_methods};
PyTypeObject IteratorType = {
    SAMPLES_TYPE("Iterator"), .tp_iter = PyObject_SelfIter,
    .tp_iternext = (iternextfunc)iterator_next};
