/* Functions of the extension, and the checks of what they are given: a wrong argument is an error, never a crash. */

#define _POSIX_C_SOURCE 200809L

#include "core.h"

#include <stdlib.h>
#include <string.h>

#define NEAR_TASKS 16

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

/* Find tasks equal to one of the last few before them: their rows are one object, and they hold as many nodes. */
static void find_equals(PyObject *rows, Problem *problem) {
    for (Py_ssize_t j = 0; j < problem->tasks; j++) {
        problem->like[j] = j;
        for (Py_ssize_t i = j - 1; i >= 0 && i >= j - NEAR_TASKS && problem->like[j] == j; i--)
            if (problem->held[j] == problem->held[i] && PyTuple_GetItem(rows, j) == PyTuple_GetItem(rows, i))
                problem->like[j] = problem->like[i];
    }
}

/* Make a problem of a tuple of rows, and of the nodes that each task holds, if they are given. */
static int read_problem(PyObject *rows, PyObject *held, long long nodes, Problem *problem) {
    int64_t largest;
    if (nodes < 0) {
        PyErr_Format(PyExc_ValueError, "Expected nodes >= 0, got %lld.", nodes);
        return -1;
    }
    if (largest_count(rows, &largest) < 0 ||
        new_problem(problem, PyTuple_Size(rows), FIRST_MIN(nodes, largest) + 1, nodes) < 0)
        return -1;
    Py_ssize_t width = problem->width * (Py_ssize_t)sizeof(double);
    for (Py_ssize_t j = 0; j < problem->tasks; j++) {
        PyObject *row = PyTuple_GetItem(rows, j);
        Py_ssize_t size = FIRST_MIN(PyBytes_Size(row), width);
        memcpy(problem->values + j * problem->width, PyBytes_AsString(row), (size_t)size);
        for (Py_ssize_t c = size / (Py_ssize_t)sizeof(double); c < problem->width; c++)
            problem->values[j * problem->width + c] = -INFINITY;
    }
    if (held != NULL && read_held(held, problem) < 0) {
        free_problem(problem);
        return -1;
    }
    find_equals(rows, problem);
    return 0;
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
    if (rows != NULL && read_problem(rows, held, nodes, &problem) == 0) {
        result = answered(&problem, effort);
        free_problem(&problem);
    }
    Py_XDECREF(rows);
    return result;
}

/* Convert pruned options: the choices left one task after another, their numbers, the known choices, bound, and step. */
static PyObject *kept_choices(const Problem *problem, const Pruned *pruned) {
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
        const double *values = problem->values + j * problem->width;
        const uint8_t *kept = pruned->kept + j * problem->width;
        Py_ssize_t choice = 0, begin = at, known = 0;
        for (Py_ssize_t count = 0; count < problem->width; count++) {
            if (values[count] == -INFINITY)
                continue;
            if (kept[count])
                left[at++] = choice;
            if (count == pruned->counts[j])
                known = choice;
            choice++;
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
"pruned(rows, nodes, time_s)\n--\n\n"
"Choices that may belong to an optimum, as `solvers.option_pruning.prune` finds them: bytes of int64, the number of\n"
"choices of each task, the choices of a known allocation, a bound, and the step that decided.");

static PyObject *pruned(PyObject *module, PyObject *args, PyObject *kwargs) {
    static char *names[] = {"rows", "nodes", "time_s", NULL};
    PyObject *given, *rows, *result = NULL;
    Problem problem;
    double time_s;
    long long nodes;
    (void)module;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OLd:pruned", names, &given, &nodes, &time_s))
        return NULL;
    double deadline_s = clock_s() + time_s;
    rows = PySequence_Tuple(given);
    if (rows != NULL && read_problem(rows, NULL, nodes, &problem) == 0) {
        Pruned left = {.kept = grown(NULL, problem.tasks * problem.width, 1)};
        left.counts = left.kept ? grown(NULL, problem.tasks, sizeof(int64_t)) : NULL;
        if (left.counts != NULL && prune(&problem, deadline_s, &left) == DONE)
            result = kept_choices(&problem, &left);
        free(left.kept);
        free(left.counts);
        free_problem(&problem);
    }
    Py_XDECREF(rows);
    return result;
}

static PyMethodDef methods[] = {
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
