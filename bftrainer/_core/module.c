/* Functions of the extension, and the checks of what they are given: a wrong argument is an error, never a crash. */

#define _POSIX_C_SOURCE 200809L

#include "core.h"

#include <stdlib.h>
#include <string.h>

/* A task is of one of the last so many kinds, or of a new one. */
#define NEAR_KINDS 32

/* Names of what is read of a task, made once: looking them up would take most of the time of reading. */
static PyObject *ROW, *DENSE_ROW, *CURRENT;

/* Read the nodes that a task holds; -1 with an error set if that is no count. */
static int64_t read_held(PyObject *task) {
    PyObject *current = PyObject_GetAttr(task, CURRENT);
    int64_t held = current == NULL ? -1 : PyLong_AsLongLong(current);
    Py_XDECREF(current);
    if (held < 0 && !PyErr_Occurred())
        PyErr_SetString(PyExc_ValueError, "Expected counts held of 0 or more.");
    return held;
}

/* Read a task's row: bytes of float64, its values at 0, 1, 2, ... nodes. */
static PyObject *read_row(PyObject *task, Py_ssize_t number, PyObject *nodes) {
    const Py_ssize_t item = (Py_ssize_t)sizeof(double);
    PyObject *row = PyObject_GetAttr(task, ROW);
    if (row == Py_None) {
        Py_DECREF(row);
        row = PyObject_CallMethodObjArgs(task, DENSE_ROW, nodes, NULL);
    }
    char *values;
    Py_ssize_t size;
    if (row != NULL && PyBytes_AsStringAndSize(row, &values, &size) < 0)
        Py_CLEAR(row);
    if (row != NULL && (size < item || size % item != 0)) {
        PyErr_Format(PyExc_ValueError, "task %zd: Expected a row of float64, got %zd bytes.", number, size);
        Py_CLEAR(row);
    }
    return row;
}

/* Find the kind of each task: those of one kind are one object, whose row is added to `rows`. */
static int find_kinds(
    PyObject *tasks, PyObject *nodes, int reads_held, Problem *problem, PyObject *rows, Py_ssize_t *first
) {
    for (Py_ssize_t j = 0; j < problem->tasks; j++) {
        PyObject *task = PyTuple_GetItem(tasks, j);
        Py_ssize_t kind = problem->kinds - 1, end = FIRST_MAX(problem->kinds - NEAR_KINDS, 0);
        while (kind >= end && PyTuple_GetItem(tasks, first[kind]) != task)
            kind--;
        if (kind < end) {
            kind = problem->kinds++;
            first[kind] = j;
            PyObject *row = read_row(task, j, nodes);
            problem->held[kind] = row != NULL && reads_held ? read_held(task) : 0;
            int is_read = row != NULL && problem->held[kind] >= 0 && PyList_Append(rows, row) == 0;
            Py_XDECREF(row);
            if (!is_read)
                return -1;
        }
        problem->kind[j] = kind;
    }
    return 0;
}

/* Copy the values of each kind, as many as the longest row has that the nodes suffice for. */
static int read_values(PyObject *rows, Problem *problem) {
    const Py_ssize_t item = (Py_ssize_t)sizeof(double);
    int64_t longest = 1;
    for (Py_ssize_t k = 0; k < problem->kinds; k++)
        longest = FIRST_MAX(longest, (int64_t)(PyBytes_Size(PyList_GetItem(rows, k)) / item));
    if (set_width(problem, FIRST_MIN(problem->nodes, longest - 1) + 1) < 0)
        return -1;
    for (Py_ssize_t k = 0; k < problem->kinds; k++) {
        PyObject *row = PyList_GetItem(rows, k);
        double *values = problem->values + k * problem->width;
        Py_ssize_t size = FIRST_MIN(PyBytes_Size(row) / item, problem->width);
        memcpy(values, PyBytes_AsString(row), (size_t)(size * item));
        for (Py_ssize_t c = size; c < problem->width; c++)
            values[c] = -INFINITY;
    }
    return 0;
}

/* Make a problem of a tuple of tasks, for which it may not matter what they hold. */
static int read_problem(PyObject *tasks, long long nodes, int reads_held, Problem *problem) {
    if (nodes < 0) {
        PyErr_Format(PyExc_ValueError, "Expected nodes >= 0, got %lld.", nodes);
        return -1;
    }
    if (PyTuple_Size(tasks) == 0) {
        PyErr_SetString(PyExc_ValueError, "Expected at least one task.");
        return -1;
    }
    if (new_problem(problem, PyTuple_Size(tasks), nodes) < 0)
        return -1;
    PyObject *rows = PyList_New(0), *pool = PyLong_FromLongLong(nodes);
    Py_ssize_t *first = rows == NULL || pool == NULL ? NULL : grown(NULL, problem->tasks, sizeof(Py_ssize_t));
    int is_read = first != NULL && find_kinds(tasks, pool, reads_held, problem, rows, first) == 0 &&
                  read_values(rows, problem) == 0;
    if (!is_read)
        free_problem(problem);
    free(first);
    Py_XDECREF(rows);
    Py_XDECREF(pool);
    return is_read ? 0 : -1;
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
"decision(tasks, nodes, prune, gap, time_s)\n--\n\n"
"Best allocation as (counts, value, bound, decided by), as `solvers.dynamic_programme` finds it; None out of time.\n"
"Of `solvers.problem.TaskOptions`, `row`, or else `dense_row(nodes)`, and `current` are read, of each kind once.");

static PyObject *decision(PyObject *module, PyObject *args, PyObject *kwargs) {
    static char *names[] = {"tasks", "nodes", "prune", "gap", "time_s", NULL};
    PyObject *given, *tasks, *result = NULL;
    Effort effort;
    Problem problem;
    double time_s;
    long long nodes;
    (void)module;
    if (!PyArg_ParseTupleAndKeywords(
            args, kwargs, "OLpdd:decision", names, &given, &nodes, &effort.prune, &effort.gap, &time_s
        ))
        return NULL;
    effort.deadline_s = clock_s() + time_s;
    tasks = PySequence_Tuple(given); /* which nobody changes while attributes are read */
    if (tasks != NULL && read_problem(tasks, nodes, 1, &problem) == 0) {
        result = answered(&problem, effort);
        free_problem(&problem);
    }
    Py_XDECREF(tasks);
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
        const double *values = problem->values + problem->kind[j] * problem->width;
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
"pruned(tasks, nodes, time_s)\n--\n\n"
"Choices that may belong to an optimum, as `solvers.option_pruning.prune` finds them: bytes of int64, the number of\n"
"choices of each task, the choices of a known allocation, a bound, and the step that decided.");

static PyObject *pruned(PyObject *module, PyObject *args, PyObject *kwargs) {
    static char *names[] = {"tasks", "nodes", "time_s", NULL};
    PyObject *given, *tasks, *result = NULL;
    Problem problem;
    double time_s;
    long long nodes;
    (void)module;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OLd:pruned", names, &given, &nodes, &time_s))
        return NULL;
    double deadline_s = clock_s() + time_s;
    tasks = PySequence_Tuple(given);
    if (tasks != NULL && read_problem(tasks, nodes, 0, &problem) == 0) {
        Pruned left = {.kept = grown(NULL, problem.tasks * problem.width, 1)};
        left.counts = left.kept ? grown(NULL, problem.tasks, sizeof(int64_t)) : NULL;
        if (left.counts != NULL && prune(&problem, deadline_s, &left) == DONE)
            result = kept_choices(&problem, &left);
        free(left.kept);
        free(left.counts);
        free_problem(&problem);
    }
    Py_XDECREF(tasks);
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
    ROW = PyUnicode_InternFromString("row");
    DENSE_ROW = PyUnicode_InternFromString("dense_row");
    CURRENT = PyUnicode_InternFromString("current");
    if (ROW == NULL || DENSE_ROW == NULL || CURRENT == NULL)
        return NULL;
    return PyModuleDef_Init(&definition);
}
