/* Functions of the extension, and the checks of what they are given: a wrong argument is an error, never a crash. */

#define _POSIX_C_SOURCE 200809L

#include "core.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Whether a buffer's items are of a kind: d (float64) or q (int64). */
static int is_kind(const Py_buffer *view, char kind) {
    const char *format = view->format == NULL ? "B" : view->format;
    if (format[0] == '@' || format[0] == '=')
        format++;
    if (format[0] == '\0' || format[1] != '\0')
        return 0;
    if (kind == 'q')
        return (format[0] == 'q' || format[0] == 'l') && view->itemsize == 8;
    return format[0] == kind;
}

/* Borrow a one-dimensional, contiguous array of a kind; of any length if `length` is negative. */
static int take_buffer(PyObject *object, char kind, Py_ssize_t length, const char *name, Py_buffer *view) {
    if (PyObject_GetBuffer(object, view, PyBUF_FORMAT | PyBUF_ND) < 0) {
        PyErr_Clear();
        PyErr_Format(PyExc_ValueError, "Expected %s to be a contiguous array.", name);
        return -1;
    }
    if (view->ndim == 1 && is_kind(view, kind) && (length < 0 || view->shape[0] == length))
        return 0;
    const char *what = kind == 'd' ? "float64" : "int64";
    if (length < 0)
        PyErr_Format(PyExc_ValueError, "Expected %s to be an array of %s with one dimension.", name, what);
    else
        PyErr_Format(PyExc_ValueError, "Expected %s to be an array of %zd %s.", name, length, what);
    PyBuffer_Release(view);
    return -1;
}

/* Arrays of all tasks: counts, then values. */
typedef struct {
    Py_ssize_t tasks, taken;
    Py_buffer *views;
} Arrays;

/* Release borrowed arrays. */
static void release(Arrays *arrays) {
    for (Py_ssize_t i = 0; i < arrays->taken; i++)
        PyBuffer_Release(arrays->views + i);
    free(arrays->views);
}

/* Borrow an item of a sequence as an array. */
static int take_item(PyObject *sequence, Py_ssize_t number, char kind, Py_ssize_t length, Arrays *arrays) {
    PyObject *item = PySequence_GetItem(sequence, number);
    if (item == NULL)
        return -1;
    const char *name = kind == 'q' ? "counts of each task" : "values of each task";
    int failed = take_buffer(item, kind, length, name, arrays->views + arrays->taken);
    Py_DECREF(item);
    arrays->taken += failed == 0;
    return failed;
}

/* Borrow the arrays of all tasks, and find the largest count on offer. */
static int take_arrays(PyObject *counts, PyObject *values, Arrays *arrays, int64_t *largest) {
    *largest = 0;
    arrays->taken = 0;
    arrays->views = NULL;
    arrays->tasks = PySequence_Size(counts);
    if (arrays->tasks < 0 || PySequence_Size(values) != arrays->tasks || arrays->tasks == 0) {
        if (!PyErr_Occurred())
            PyErr_SetString(PyExc_ValueError, "Expected as many arrays of values as of counts, and at least one.");
        return -1;
    }
    arrays->views = grown(NULL, 2 * arrays->tasks, sizeof(Py_buffer));
    if (arrays->views == NULL)
        return -1;
    for (Py_ssize_t j = 0; j < arrays->tasks; j++) {
        if (take_item(counts, j, 'q', -1, arrays) < 0)
            return -1;
        const Py_buffer *view = arrays->views + 2 * j;
        const int64_t *own = view->buf;
        Py_ssize_t size = view->shape[0];
        if (take_item(values, j, 'd', size, arrays) < 0)
            return -1;
        int wrong = size < 1 || own[0] != 0;
        for (Py_ssize_t k = 1; k < size; k++)
            wrong |= own[k] <= own[k - 1];
        if (wrong) {
            PyErr_Format(PyExc_ValueError, "task %zd: Expected counts to increase strictly from 0.", j);
            return -1;
        }
        *largest = FIRST_MAX(*largest, own[size - 1]);
    }
    return 0;
}

/* Read the nodes that each task holds. */
static int read_held(PyObject *held, Problem *problem) {
    Py_ssize_t size = PySequence_Size(held);
    if (size != problem->tasks) {
        if (!PyErr_Occurred())
            PyErr_Format(PyExc_ValueError, "Expected %zd counts held, got %zd.", problem->tasks, size);
        return -1;
    }
    for (Py_ssize_t j = 0; j < size; j++) {
        PyObject *item = PySequence_GetItem(held, j);
        problem->held[j] = item == NULL ? -1 : PyLong_AsLongLong(item);
        Py_XDECREF(item);
        if (PyErr_Occurred())
            return -1;
        if (problem->held[j] < 0) {
            PyErr_SetString(PyExc_ValueError, "Expected counts held of 0 or more.");
            return -1;
        }
    }
    return 0;
}

/* Make an empty problem whose counts reach to the largest on offer, or to the pool. */
static int sized_problem(Py_ssize_t tasks, long long nodes, int64_t largest, Problem *problem) {
    if (nodes < 0) {
        PyErr_Format(PyExc_ValueError, "Expected nodes >= 0, got %lld.", nodes);
        return -1;
    }
    /* Counts beyond 32 bits are refused there; one more than the largest of 64 bits would overflow. */
    int64_t last = FIRST_MIN(FIRST_MIN(nodes, largest), (int64_t)INT32_MAX);
    return new_problem(problem, tasks, last + 1, nodes);
}

/* Make a problem of the arrays of all tasks. */
static int read_problem(long long nodes, int64_t largest, const Arrays *arrays, Problem *problem) {
    if (sized_problem(arrays->tasks, nodes, largest, problem) < 0)
        return -1;
    for (Py_ssize_t j = 0; j < arrays->tasks; j++) {
        const Py_buffer *own = arrays->views + 2 * j;
        const int64_t *counts = own->buf;
        const double *values = own[1].buf;
        double *row = problem->values + j * problem->width;
        for (Py_ssize_t k = 0; k < own->shape[0] && counts[k] < problem->width; k++)
            row[counts[k]] = values[k];
    }
    return 0;
}

/* Find the largest count of a tuple of rows: bytes of float64, a task's values at 0, 1, 2, ... nodes. */
static int largest_count(PyObject *rows, int64_t *largest) {
    const Py_ssize_t item = (Py_ssize_t)sizeof(double);
    char *values;
    *largest = 0;
    if (PyTuple_Size(rows) == 0) {
        PyErr_SetString(PyExc_ValueError, "Expected at least one row of values.");
        return -1;
    }
    for (Py_ssize_t j = 0, size; j < PyTuple_Size(rows); j++) {
        if (PyBytes_AsStringAndSize(PyTuple_GetItem(rows, j), &values, &size) < 0)
            return -1;
        if (size < item || size % item != 0) {
            PyErr_Format(PyExc_ValueError, "task %zd: Expected a row of float64, got %zd bytes.", j, size);
            return -1;
        }
        *largest = FIRST_MAX(*largest, (int64_t)(size / item) - 1);
    }
    return 0;
}

/* Make a problem of a tuple of rows, and of the nodes that each task holds. */
static int copy_rows(PyObject *rows, PyObject *held, long long nodes, Problem *problem) {
    int64_t largest;
    if (largest_count(rows, &largest) < 0 || sized_problem(PyTuple_Size(rows), nodes, largest, problem) < 0)
        return -1;
    Py_ssize_t width = problem->width * (Py_ssize_t)sizeof(double);
    for (Py_ssize_t j = 0; j < problem->tasks; j++) {
        PyObject *row = PyTuple_GetItem(rows, j);
        memcpy(problem->values + j * problem->width, PyBytes_AsString(row), (size_t)FIRST_MIN(PyBytes_Size(row), width));
    }
    if (read_held(held, problem) == 0)
        return 0;
    free_problem(problem);
    return -1;
}

/* Convert numbers to a tuple of int. */
static PyObject *as_tuple(const int64_t *numbers, Py_ssize_t count) {
    PyObject *tuple = PyTuple_New(count);
    for (Py_ssize_t i = 0; tuple != NULL && i < count; i++) {
        PyObject *item = PyLong_FromLongLong(numbers[i]);
        if (item == NULL || PyTuple_SetItem(tuple, i, item) < 0)
            Py_CLEAR(tuple);
    }
    return tuple;
}

/* Decide, and convert the answer; None if time was out. */
static PyObject *answered(const Problem *problem, Effort effort) {
    Answer answer = {.counts = grown(NULL, problem->tasks, sizeof(int64_t))};
    PyObject *result = NULL;
    Outcome outcome = answer.counts == NULL ? FAILED : decide(problem, effort, &answer);
    if (outcome == OUT_OF_TIME) {
        result = Py_None;
        Py_INCREF(result);
    } else if (outcome == DONE) {
        PyObject *counts = as_tuple(answer.counts, problem->tasks);
        if (counts != NULL)
            result = Py_BuildValue("(Nddi)", counts, answer.value, answer.bound, (int)answer.by);
    }
    free(answer.counts);
    return result;
}

PyDoc_STRVAR(decision_doc,
"decision(rows, held, nodes, prune, gap, time_s)\n--\n\n"
"Best allocation as (counts, value, bound, decided by), as `solvers.dynamic_programme` finds it; None out of time.\n"
"A row is the bytes of a task's values at 0, 1, 2, ... nodes, as float64; -inf where a count is no option.");

static PyObject *decision(PyObject *module, PyObject *args, PyObject *kwargs) {
    static char *names[] = {"rows", "held", "nodes", "prune", "gap", "time_s", NULL};
    PyObject *given, *held, *rows, *result = NULL;
    Effort effort;
    Problem problem;
    double time_s;
    long long nodes;
    (void)module;
    if (!PyArg_ParseTupleAndKeywords(
            args, kwargs, "OOLpdd:decision", names, &given, &held, &nodes, &effort.prune, &effort.gap, &time_s
        ))
        return NULL;
    effort.deadline_s = clock_s() + time_s;
    rows = PySequence_Tuple(given); /* which nobody changes while `held` is read */
    if (rows != NULL && copy_rows(rows, held, nodes, &problem) == 0) {
        result = answered(&problem, effort);
        free_problem(&problem);
    }
    Py_XDECREF(rows);
    return result;
}

/* Convert pruned options: the choices left one task after another, their numbers, the known choices, bound, and step. */
static PyObject *kept_choices(const Problem *problem, const Arrays *arrays, const Pruned *pruned) {
    Py_ssize_t total = 0, at = 0;
    for (Py_ssize_t i = 0; i < problem->tasks * problem->width; i++)
        total += pruned->kept[i];
    PyObject *flat = PyBytes_FromStringAndSize(NULL, total * (Py_ssize_t)sizeof(int64_t));
    int64_t *sizes = flat ? grown(NULL, problem->tasks, sizeof(int64_t)) : NULL;
    if (sizes == NULL) {
        Py_XDECREF(flat);
        return NULL;
    }
    int64_t *left = (int64_t *)PyBytes_AsString(flat);
    for (Py_ssize_t j = 0; j < problem->tasks; j++) {
        const int64_t *own = arrays->views[2 * j].buf;
        const uint8_t *kept = pruned->kept + j * problem->width;
        Py_ssize_t size = arrays->views[2 * j].shape[0], begin = at, known = 0;
        for (Py_ssize_t k = 0; k < size && own[k] < problem->width; k++) {
            if (kept[own[k]])
                left[at++] = k;
            if (own[k] == pruned->counts[j])
                known = k;
        }
        sizes[j] = at - begin;
        pruned->counts[j] = known;
    }
    PyObject *lengths = as_tuple(sizes, problem->tasks), *known = as_tuple(pruned->counts, problem->tasks);
    free(sizes);
    if (at == total && lengths != NULL && known != NULL)
        return Py_BuildValue("(NNNdi)", flat, lengths, known, pruned->bound, (int)pruned->by);
    if (at != total && !PyErr_Occurred())
        PyErr_SetString(PyExc_OverflowError, "Expected values whose sums are finite.");
    Py_DECREF(flat);
    Py_XDECREF(lengths);
    Py_XDECREF(known);
    return NULL;
}

PyDoc_STRVAR(pruned_doc,
"pruned(counts, values, nodes, time_s)\n--\n\n"
"Choices that may belong to an optimum, as `solvers.option_pruning.prune` finds them: bytes of int64, the number of\n"
"choices of each task, the choices of a known allocation, a bound, and the step that decided.");

static PyObject *pruned(PyObject *module, PyObject *args, PyObject *kwargs) {
    static char *names[] = {"counts", "values", "nodes", "time_s", NULL};
    PyObject *counts, *values, *result = NULL;
    Arrays arrays = {0};
    Problem problem;
    double time_s;
    long long nodes;
    int64_t largest;
    (void)module;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OOLd:pruned", names, &counts, &values, &nodes, &time_s))
        return NULL;
    double deadline_s = clock_s() + time_s;
    if (take_arrays(counts, values, &arrays, &largest) == 0 &&
        read_problem(nodes, largest, &arrays, &problem) == 0) {
        Pruned left = {.kept = grown(NULL, problem.tasks * problem.width, 1)};
        left.counts = left.kept ? grown(NULL, problem.tasks, sizeof(int64_t)) : NULL;
        if (left.counts != NULL && prune(&problem, deadline_s, &left) == DONE)
            result = kept_choices(&problem, &arrays, &left);
        free(left.kept);
        free(left.counts);
        free_problem(&problem);
    }
    release(&arrays);
    return result;
}

static char cut_off_line[1024];

/* Say which file was cut off, and end: what was computed from it would be wrong, and there is no way back. */
static void end_now(int number) {
    (void)number;
    if (write(2, cut_off_line, strlen(cut_off_line)) >= 0)
        _exit(2);
    _exit(1);
}

PyDoc_STRVAR(end_where_cut_off_doc,
"end_where_cut_off(line)\n--\n\n"
"Print a line and end this process, with status 2, when it reads beyond the end of a mapped file that was cut off.");

static PyObject *end_where_cut_off(PyObject *module, PyObject *args) {
    const char *line;
    (void)module;
    if (!PyArg_ParseTuple(args, "s:end_where_cut_off", &line))
        return NULL;
    snprintf(cut_off_line, sizeof cut_off_line, "%s", line);
    struct sigaction action = {.sa_handler = end_now};
    sigaction(SIGBUS, &action, NULL);
    Py_RETURN_NONE;
}

static PyMethodDef methods[] = {
    {"end_where_cut_off", end_where_cut_off, METH_VARARGS, end_where_cut_off_doc},
    {"decision", (PyCFunction)(void (*)(void))decision, METH_VARARGS | METH_KEYWORDS, decision_doc},
    {"pruned", (PyCFunction)(void (*)(void))pruned, METH_VARARGS | METH_KEYWORDS, pruned_doc},
    {NULL, NULL, 0, NULL},
};

static PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "bftrainer._core._core",
    .m_doc = "Decisions and exact pruning, compiled.",
    .m_methods = methods,
};

PyMODINIT_FUNC PyInit__core(void) {
    return PyModuleDef_Init(&definition);
}
