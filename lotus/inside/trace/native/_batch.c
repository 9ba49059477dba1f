/* What is done in C for every batch: what the kernel counted, the batch's frame, and its writing.

The functions do what those of the same names do in rusage.py, packing.py, log_format.py and
log_writer.py, and know nothing of the layout of a frame but its header. */

#include "_hooks.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

/* PyLong_AsLong is several times as quick as PyLong_AsLongLong. */
static int64_t as_signed(PyObject *number)
{
    return sizeof(long) == 8 ? PyLong_AsLong(number) : PyLong_AsLongLong(number);
}

static uint64_t as_unsigned(PyObject *number)
{
    return sizeof(long) == 8 ? PyLong_AsUnsignedLong(number) : PyLong_AsUnsignedLongLong(number);
}

/* What the kernel counts of this thread, and `process` of all threads. */
typedef struct {
    unsigned long long delay; /* ns; UNMEASURED where nothing tells */
    long long process, cpu;   /* ns */
    long long minor, major, blocks, voluntary, involuntary;
} Reading;

#define UNMEASURED UINT64_MAX /* as in log_format.py */

static Reading read_usage(void)
{
    char text[80];
    Reading now = {.delay = UNMEASURED};
    int fd = open("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC);
    if (fd >= 0) {
        ssize_t size = read(fd, text, sizeof text - 1);
        close(fd);
        if (size > 0) {
            text[size] = 0;
            char *second = strchr(text, ' '), *end = second;
            unsigned long long delay = second ? strtoull(second, &end, 10) : 0;
            if (end != second)
                now.delay = delay;
        }
    }
    struct rusage used;
    memset(&used, 0, sizeof used);
    getrusage(RUSAGE_THREAD, &used);
    now.process = read_clock(CLOCK_PROCESS_CPUTIME_ID);
    now.cpu = read_clock(CLOCK_THREAD_CPUTIME_ID);
    now.minor = used.ru_minflt;
    now.major = used.ru_majflt;
    now.blocks = used.ru_inblock;
    now.voluntary = used.ru_nvcsw;
    now.involuntary = used.ru_nivcsw;
    return now;
}

/* readings() -> as `reading` of rusage.py. */
static PyObject *readings(PyObject *module, PyObject *unused)
{
    Reading now = read_usage();
    return Py_BuildValue("KLLLLLLL", now.delay, now.process, now.cpu, now.minor, now.major,
                         now.blocks, now.voluntary, now.involuntary);
}

/* spent(readings) -> as `spent` of rusage.py. */
static PyObject *spent(PyObject *module, PyObject *before)
{
    if (!PyTuple_Check(before) || PyTuple_GET_SIZE(before) != 8) {
        PyErr_SetString(PyExc_TypeError, "no readings");
        return NULL;
    }
    Reading now = read_usage(), then = {.delay = as_unsigned(PyTuple_GET_ITEM(before, 0))};
    long long *rest[] = {&then.process, &then.cpu, &then.minor, &then.major, &then.blocks,
                         &then.voluntary, &then.involuntary};
    for (int place = 0; place < 7; place++)
        *rest[place] = as_signed(PyTuple_GET_ITEM(before, place + 1));
    if (PyErr_Occurred())
        return NULL;
    int known = then.delay != UNMEASURED && now.delay != UNMEASURED;
    return Py_BuildValue(
        "LLLLLLKL", now.cpu - then.cpu, now.minor - then.minor, now.major - then.major,
        (now.blocks - then.blocks) * 512, now.voluntary - then.voluntary,
        now.involuntary - then.involuntary,
        known ? now.delay - then.delay : UNMEASURED, now.process - then.process);
}

/* The number of an int that is 0 or more, or -1. */
static long long number_of(PyObject *item)
{
    if (!PyLong_CheckExact(item))
        return -1;
#if PY_VERSION_HEX < 0x030C0000
    if (Py_SIZE(item) == 1) /* most indices: one digit */
        return ((PyLongObject *)item)->ob_digit[0];
#endif
    int overflow;
    return PyLong_AsLongLongAndOverflow(item, &overflow); /* -1 where it does not fit */
}

/* pack_indices(list) -> 4 bytes of each, or None where one is no int from 0 to 2^32 - 1. */
static PyObject *pack_indices(PyObject *module, PyObject *list)
{
    if (!PyList_CheckExact(list))
        Py_RETURN_NONE;
    Py_ssize_t count = PyList_GET_SIZE(list);
    PyObject *bytes = PyBytes_FromStringAndSize(NULL, count * (Py_ssize_t)sizeof(uint32_t));
    char *to = bytes ? PyBytes_AS_STRING(bytes) : NULL;
    for (Py_ssize_t place = 0; to && place < count; place++, to += sizeof(uint32_t)) {
        long long number = number_of(PyList_GET_ITEM(list, place));
        if (number < 0 || number > UINT32_MAX) {
            Py_DECREF(bytes);
            Py_RETURN_NONE;
        }
        uint32_t low = (uint32_t)number;
        memcpy(to, &low, sizeof low);
    }
    return bytes;
}

/* ---- A frame of the log ---- */

static uint32_t crc_table[8][256];

static void fill_crc_table(void)
{
    for (uint32_t byte = 0; byte < 256; byte++) {
        uint32_t crc = byte;
        for (int bit = 0; bit < 8; bit++)
            crc = crc & 1 ? crc >> 1 ^ 0xEDB88320 : crc >> 1;
        crc_table[0][byte] = crc;
    }
    for (int table = 1; table < 8; table++)
        for (int byte = 0; byte < 256; byte++) {
            uint32_t crc = crc_table[table - 1][byte];
            crc_table[table][byte] = crc >> 8 ^ crc_table[0][crc & 255];
        }
}

/* CRC-32, that of zlib, eight bytes at a time. */
static uint32_t crc32_of(const unsigned char *data, size_t size)
{
    uint32_t crc = ~(uint32_t)0;
    for (; size >= 8; size -= 8, data += 8) {
        uint32_t low, high;
        memcpy(&low, data, 4);
        memcpy(&high, data + 4, 4);
        low ^= crc;
        crc = crc_table[7][low & 255] ^ crc_table[6][low >> 8 & 255] ^
              crc_table[5][low >> 16 & 255] ^ crc_table[4][low >> 24] ^
              crc_table[3][high & 255] ^ crc_table[2][high >> 8 & 255] ^
              crc_table[1][high >> 16 & 255] ^ crc_table[0][high >> 24];
    }
    for (; size; size--, data++)
        crc = crc >> 8 ^ crc_table[0][(crc ^ *data) & 255];
    return ~crc;
}

/* Bytes of a number by its code of `struct`; 0: not known here. */
static const unsigned char width_of[256] = {['i'] = 4, ['I'] = 4, ['q'] = 8, ['Q'] = 8};

/* Write a number as its code says. Return -1 where it does not fit. */
static int put_number(char *to, unsigned char code, PyObject *item)
{
    PyObject *number = item;
    if (PyLong_CheckExact(item))
        Py_INCREF(item);
    else if (!(number = PyNumber_Index(item)))
        return -1;
    uint64_t value;
    int fits;
    if (code == 'Q' || code == 'I') {
        value = as_unsigned(number);
        fits = code == 'Q' || value <= UINT32_MAX;
    } else {
        int64_t whole = as_signed(number);
        fits = code == 'q' || (whole >= INT32_MIN && whole <= INT32_MAX);
        value = (uint64_t)whole;
    }
    Py_DECREF(number);
    if (value == UINT64_MAX && PyErr_Occurred())
        return -1;
    if (!fits) {
        PyErr_SetString(PyExc_OverflowError, "a number does not fit into its field");
        return -1;
    }
    if (width_of[code] == 8)
        memcpy(to, &value, 8); /* little-endian */
    else
        memcpy(to, &value, 4);
    return 0;
}

enum { FRAME_HEADER = 16, FRAME_MAGIC = 0x5246544C }; /* log_format.py; checked at loading */

/* record(kind, codes, fields, arrays) -> as `record` of log_format.py. */
static PyObject *record(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    if (count != 4 || !PyUnicode_Check(args[1]) || !PyList_Check(args[2]) ||
        !PyTuple_Check(args[3])) {
        PyErr_SetString(PyExc_TypeError, "a kind, codes, a list of numbers and a tuple of bytes");
        return NULL;
    }
    unsigned long kind = PyLong_AsUnsignedLong(args[0]);
    const unsigned char *codes = (const unsigned char *)PyUnicode_AsUTF8(args[1]);
    PyObject *fields = args[2], *arrays = args[3];
    if (!codes || PyErr_Occurred())
        return NULL;
    codes += *codes == '<';
    Py_ssize_t rows = PyTuple_GET_SIZE(arrays);
    size_t size = 0, known = strlen((const char *)codes);
    int right = kind <= UINT16_MAX && known == (size_t)PyList_GET_SIZE(fields);
    for (size_t place = 0; right && place < known; place++) {
        right = width_of[codes[place]] > 0;
        size += width_of[codes[place]];
    }
    for (Py_ssize_t row = 0; right && row < rows; row++) {
        right = PyBytes_Check(PyTuple_GET_ITEM(arrays, row));
        size += right ? (size_t)PyBytes_GET_SIZE(PyTuple_GET_ITEM(arrays, row)) : 0;
    }
    if (!right || size > INT32_MAX) {
        PyErr_SetString(PyExc_ValueError, "no frame");
        return NULL;
    }
    PyObject *bytes = PyBytes_FromStringAndSize(NULL, FRAME_HEADER + (Py_ssize_t)size);
    if (!bytes)
        return NULL;
    char *frame = PyBytes_AS_STRING(bytes), *to = frame + FRAME_HEADER;
    for (size_t place = 0; place < known; place++) {
        if (place >= (size_t)PyList_GET_SIZE(fields) ||
            put_number(to, codes[place], PyList_GET_ITEM(fields, place)) < 0) {
            if (!PyErr_Occurred())
                PyErr_SetString(PyExc_ValueError, "no frame");
            Py_DECREF(bytes);
            return NULL;
        }
        to += width_of[codes[place]];
    }
    for (Py_ssize_t row = 0; row < rows; row++) {
        PyObject *array = PyTuple_GET_ITEM(arrays, row);
        memcpy(to, PyBytes_AS_STRING(array), (size_t)PyBytes_GET_SIZE(array));
        to += PyBytes_GET_SIZE(array);
    }
    /* The CRC is of kind, flags, size and payload; these three stand before the payload for it. */
    uint16_t kind_and_flags[2] = {(uint16_t)kind, 0};
    uint32_t length = (uint32_t)size, magic = FRAME_MAGIC;
    memcpy(frame + 8, kind_and_flags, 4);
    memcpy(frame + 12, &length, 4);
    uint32_t crc = crc32_of((unsigned char *)frame + 8, size + 8);
    memcpy(frame, &magic, 4);
    memcpy(frame + 4, kind_and_flags, 4);
    memcpy(frame + 8, &length, 4);
    memcpy(frame + 12, &crc, 4);
    return bytes;
}

/* append(fd, device, inode, data) -> as `append` of log_writer.py; -2 where the file would grow past
its limit. */
static PyObject *append(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    if (count != 4 || !PyBytes_Check(args[3])) {
        PyErr_SetString(PyExc_TypeError, "a descriptor, a device, an inode and bytes");
        return NULL;
    }
    long fd = PyLong_AsLong(args[0]);
    unsigned long long device = PyLong_AsUnsignedLongLong(args[1]);
    unsigned long long inode = PyLong_AsUnsignedLongLong(args[2]);
    if (PyErr_Occurred())
        return NULL;
    struct stat status;
    if (fd < 0 || fd > INT_MAX || fstat((int)fd, &status) < 0 || status.st_dev != device ||
        status.st_ino != inode)
        return PyLong_FromLong(-1);
    const char *data = PyBytes_AS_STRING(args[3]);
    size_t left = status.st_nlink ? (size_t)PyBytes_GET_SIZE(args[3]) : 0;
    struct rlimit limit;
    if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY &&
        (uint64_t)status.st_size + left > limit.rlim_cur)
        return PyLong_FromLong(-2);
    while (left) {
        ssize_t done;
        int error;
        Py_BEGIN_ALLOW_THREADS
        done = write((int)fd, data, left);
        error = errno;
        Py_END_ALLOW_THREADS
        if (done >= 0) {
            data += done;
            left -= (size_t)done;
        } else if (error == EBADF) { /* closed meanwhile */
            return PyLong_FromLong(-1);
        } else if (error != EINTR) {
            errno = error;
            return PyErr_SetFromErrno(PyExc_OSError);
        } else if (PyErr_CheckSignals() < 0) {
            return NULL;
        }
    }
    return PyLong_FromUnsignedLong((unsigned long)status.st_nlink);
}

static PyMethodDef functions[] = {
    {"readings", readings, METH_NOARGS, "Return what the kernel counts of this thread."},
    {"spent", spent, METH_O, "Return what was counted since other readings."},
    {"pack_indices", pack_indices, METH_O, "Return the bytes of indices, or None."},
    {"record", (PyCFunction)(void (*)(void))record, METH_FASTCALL, "Return a frame of the log."},
    {"append", (PyCFunction)(void (*)(void))append, METH_FASTCALL, "Append bytes to a log."},
    {NULL, NULL, 0, NULL},
};

int add_batch_functions(PyObject *module)
{
    fill_crc_table();
    return PyModule_AddFunctions(module, functions);
}
