/* A buffer of the hooks in C, with as much of a list's behaviour as the recorder uses. */

#include "_hooks.h"

#include <string.h>

/* Return an empty buffer, or NULL with an exception. */
Buffer *new_buffer(void)
{
    Buffer *self = PyObject_New(Buffer, &BufferType);
    if (self) {
        self->items = NULL;
        self->size = self->room = 0;
    }
    return self;
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
PyTypeObject BufferType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "_hooks.Buffer",
    .tp_basicsize = sizeof(Buffer),
    .tp_dealloc = (destructor)buffer_dealloc,
    .tp_as_mapping = &buffer_mapping,
    .tp_as_sequence = &buffer_sequence,
    .tp_methods = buffer_methods,
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_doc = "Numbers in rows of three.",
};
