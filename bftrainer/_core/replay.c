/* The type `Replay`: a whole replay in the compiled core, for static objectives and plain tasks. */

#include "replay.h"

#include <stdlib.h>
#include <string.h>

#define MOST_VIEWS(tasks) (11 + 2 * (tasks))

static PyObject *array_type = NULL;

/* Borrow an array; NULL with an error set if it is not as expected. */
static const void *borrow(Replay *r, PyObject *object, char kind, Py_ssize_t length, const char *name) {
    if (take_buffer(object, kind, length, name, r->views + r->view_count) < 0)
        return NULL;
    return r->views[r->view_count++].buf;
}

/* Refuse an argument. */
static int refuse(const char *what) {
    PyErr_Format(PyExc_ValueError, "Expected %s.", what);
    return -1;
}

/* Check the rows: offsets and times that ascend, and known nodes, ascending within a row. */
static int check_rows(const Replay *r) {
    Py_ssize_t transitions = r->transition_count;
    if (r->row_from[0] != 0 || r->row_from[r->row_count] != transitions)
        return refuse("offsets of rows from 0 to the number of transitions");
    for (Py_ssize_t row = 0; row < r->row_count; row++) {
        if (r->row_from[row + 1] < r->row_from[row] || r->row_from[row + 1] > transitions)
            return refuse("offsets of rows that ascend");
        if (!(r->row_s[row] >= 0.0 && isfinite(r->row_s[row])) || (row && r->row_s[row] < r->row_s[row - 1]))
            return refuse("times of rows of 0 or more that ascend");
        int64_t last = -1;
        for (int64_t i = r->row_from[row]; i < r->row_from[row + 1]; last = r->row_node[i++])
            if (r->row_node[i] <= last || r->row_node[i] >= r->node_count)
                return refuse("known nodes, ascending in each row");
    }
    return 0;
}

/* Read the tasks' data, and check all that indices depend on. */
static int read_tasks(Replay *r, PyObject *arrays[6], PyObject *order, PyObject *credits, PyObject *rates) {
    static const char *names[] = {"submit_s", "min_nodes", "max_nodes", "work", "grow_cost_s", "shrink_cost_s"};
    const void *data[6];
    Py_ssize_t tasks = r->task_count;
    for (int i = 0; i < 6; i++)
        if ((data[i] = borrow(r, arrays[i], i == 1 || i == 2 ? 'q' : 'd', tasks, names[i])) == NULL)
            return -1;
    if ((r->order = borrow(r, order, 'q', tasks, "order")) == NULL)
        return -1;
    if (PySequence_Size(credits) != tasks || PySequence_Size(rates) != tasks)
        return PyErr_Occurred() ? -1 : refuse("credits and rates of each task");
    for (Py_ssize_t t = 0; t < tasks; t++) {
        Task *task = r->tasks + t;
        *task = (Task){
            .submit_s = ((const double *)data[0])[t], .least = ((const int64_t *)data[1])[t],
            .most = ((const int64_t *)data[2])[t], .work = ((const double *)data[3])[t],
            .grow_s = ((const double *)data[4])[t], .shrink_s = ((const double *)data[5])[t],
        };
        if (isnan(task->submit_s))
            return refuse("times of submission");
        if (task->least < 1 || task->most < task->least || task->most >= INT32_MAX)
            return refuse("1 <= min_nodes <= max_nodes");
        for (int i = 0; i < 2; i++) {
            PyObject *item = PySequence_GetItem(i ? rates : credits, t);
            const void *table =
                item ? borrow(r, item, 'd', (Py_ssize_t)task->most + 1, i ? "rates" : "credits") : NULL;
            Py_XDECREF(item);
            if (table == NULL)
                return -1;
            *(i ? &task->rates : &task->credits) = table;
        }
    }
    for (Py_ssize_t i = 0; i < tasks; i++) {
        int64_t task = r->order[i];
        if (task < 0 || task >= tasks || r->due[task]++)
            return refuse("order to be a permutation of the tasks");
        if (i && !(r->tasks[task].submit_s >= r->tasks[r->order[i - 1]].submit_s))
            return refuse("order to be that of submission");
    }
    memset(r->due, 0, (size_t)tasks);
    return 0;
}

/* Zeroed memory. */
static int reserve(void *place, Py_ssize_t count, size_t size) {
    void *memory = grown(NULL, count, size);
    if (memory != NULL)
        memset(memory, 0, (size_t)FIRST_MAX(count, 1) * size);
    *(void **)place = memory;
    return memory == NULL ? -1 : 0;
}

/* Make the arrays of tasks, nodes and active tasks. */
static int reserve_all(Replay *r) {
    Active *a = &r->active;
    Books *b = &r->books;
    Py_ssize_t tasks = r->task_count, nodes = r->node_count, slots = FIRST_MIN(r->max_tasks, tasks);
    const struct { void *place; Py_ssize_t count; size_t size; } wanted[] = {
        {&r->views, MOST_VIEWS(tasks), sizeof(Py_buffer)}, {&r->tasks, tasks, sizeof(Task)},
        {&r->due, tasks, 1}, {&r->slot_of, tasks, sizeof(int32_t)},
        {&r->owner, nodes, sizeof(int32_t)}, {&r->moved, nodes, sizeof(int32_t)},
        {&r->spare, slots, sizeof(uint64_t *)}, {&r->unheld.words, r->words, sizeof(uint64_t)},
        {&a->task, slots, sizeof(int32_t)}, {&a->ends, slots, 1}, {&a->nodes, slots, sizeof(NodeSet)},
        {&a->count, slots, 8}, {&a->lost, slots, 8}, {&a->after, slots, 8}, {&a->work, slots, 8},
        {&a->progress, slots, 8}, {&a->rate, slots, 8}, {&a->pending, slots, 8}, {&a->reached_s, slots, 8},
        {&a->gross, slots, 8}, {&a->preemption, slots, 8},
        {&b->started_s, tasks, 8}, {&b->completed_s, tasks, 8}, {&b->work, tasks, 8}, {&b->node_s, tasks, 8},
        {&b->rescale_cost, tasks, 8}, {&b->preemption_cost, tasks, 8}, {&b->rescales, tasks, 8},
        {&b->preemptions, tasks, 8},
    };
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++)
        if (reserve(wanted[i].place, wanted[i].count, wanted[i].size) < 0)
            return -1;
    if (r->words && slots > PY_SSIZE_T_MAX / 8 / r->words) {
        PyErr_NoMemory();
        return -1;
    }
    if (reserve(&r->memory, slots * r->words, sizeof(uint64_t)) < 0)
        return -1;
    for (Py_ssize_t s = 0; s < slots; s++)
        r->spare[r->spare_count++] = r->memory + (slots - 1 - s) * r->words;
    for (Py_ssize_t n = 0; n < nodes; n++)
        r->owner[n] = -2;
    for (Py_ssize_t t = 0; t < tasks; t++) {
        r->slot_of[t] = -1;
        b->started_s[t] = b->completed_s[t] = NAN;
    }
    r->unheld.low = r->words;
    r->remaining = tasks;
    r->max_tasks = slots;
    return 0;
}

/* Release everything. */
static void free_replay(PyObject *self) {
    Replay *r = (Replay *)self;
    Active *a = &r->active;
    Books *b = &r->books;
    void *blocks[] = {
        r->views, r->tasks, r->due, r->slot_of, r->owner, r->moved, r->spare, r->unheld.words, r->memory, a->task,
        a->ends, a->nodes, a->count, a->lost, a->after, a->work, a->progress, a->rate, a->pending, a->reached_s,
        a->gross, a->preemption, b->started_s, b->completed_s, b->work, b->node_s, b->rescale_cost,
        b->preemption_cost, b->rescales, b->preemptions,
    };
    for (Py_ssize_t i = 0; i < r->view_count; i++)
        PyBuffer_Release(r->views + i);
    for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++)
        free(blocks[i]);
    for (int i = 0; i < COLUMNS; i++)
        free(r->columns[i].data);
    PyTypeObject *type = Py_TYPE(self);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    release(self);
    Py_DECREF(type);
}

/* Check settings that are numbers. */
static int check_settings(const Replay *r, long long nodes, long long max_tasks) {
    if (nodes < 0 || nodes > INT32_MAX - 64)
        return refuse("0 nodes or more, as 32 bits count");
    if (max_tasks < 1)
        return refuse("max_tasks >= 1");
    if (!(r->end_s >= 0.0 && isfinite(r->end_s)) || isnan(r->until_s))
        return refuse("an end at 0 s or later");
    if (r->decider < BY_PROGRAMME || r->decider > BY_PYTHON)
        return refuse("decider 0, 1 or 2");
    return 0;
}

static PyObject *new_replay(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    static char *names[] = {
        "row_s", "row_from", "node", "idle", "nodes", "end_s", "until_s", "submit_s", "min_nodes", "max_nodes", "work",
        "grow_cost_s", "shrink_cost_s", "order", "credits", "rates", "max_tasks", "forward_s", "time_limit_s",
        "max_events", "gap", "prune", "by_rows_only", "noticed", "full_startup", "first_empty", "decider", NULL
    };
    PyObject *row_s, *row_from, *node, *idle, *arrays[6], *order, *credits, *rates;
    long long nodes, max_tasks;
    allocfunc allocate = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    Replay *r = (Replay *)allocate(type, 0);
    if (r == NULL)
        return NULL;
    name_columns(r->columns);
    if (!PyArg_ParseTupleAndKeywords(
            args, kwargs, "OOOOLddOOOOOOOOOLddLdpppppi:Replay", names, &row_s, &row_from, &node, &idle, &nodes,
            &r->end_s, &r->until_s, arrays, arrays + 1, arrays + 2, arrays + 3, arrays + 4, arrays + 5, &order,
            &credits, &rates, &max_tasks, &r->forward_s, &r->time_limit_s, &r->max_events, &r->effort.gap,
            &r->effort.prune, &r->by_rows_only, &r->noticed, &r->full_startup, &r->first_empty, &r->decider
        ) ||
        check_settings(r, nodes, max_tasks) < 0 || (r->task_count = PySequence_Size(credits)) < 0)
        goto failed;
    r->node_count = (Py_ssize_t)nodes;
    r->words = (r->node_count + 63) / 64;
    r->max_tasks = (Py_ssize_t)FIRST_MIN(max_tasks, (long long)INT32_MAX);
    r->is_first = 1;
    if (reserve_all(r) < 0 || (r->row_s = borrow(r, row_s, 'd', -1, "row_s")) == NULL)
        goto failed;
    r->row_count = r->views[0].shape[0];
    if ((r->row_from = borrow(r, row_from, 'q', r->row_count + 1, "row_from")) == NULL ||
        (r->row_node = borrow(r, node, 'i', -1, "node")) == NULL)
        goto failed;
    r->transition_count = r->views[2].shape[0];
    if ((r->row_idle = borrow(r, idle, '?', r->transition_count, "idle")) == NULL || check_rows(r) < 0 ||
        read_tasks(r, arrays, order, credits, rates) < 0)
        goto failed;
    return (PyObject *)r;
failed:
    Py_DECREF((PyObject *)r);
    return NULL;
}

/* Whether a method may run now. */
static int is_idle(const Replay *r) {
    if (!r->busy && !r->failed)
        return 1;
    PyErr_SetString(PyExc_RuntimeError, r->busy ? "The replay is running." : "The replay has failed.");
    return 0;
}

/* What `run` returns: 0 to go on, 1 if it asks, 2 at the end. */
static PyObject *progress_of(const Replay *r) {
    return PyLong_FromLong(r->reason != GOES_ON ? 2 : r->asks);
}

PyDoc_STRVAR(run_doc,
"run(max_steps, interrupted)\n--\n\n"
"Process so many instants at most; return 0 to go on, 1 where a decision is asked for, 2 at the end.");

static PyObject *run(PyObject *self, PyObject *args) {
    Replay *r = (Replay *)self;
    long long most;
    PyObject *interrupted;
    if (!PyArg_ParseTuple(args, "LO:run", &most, &interrupted) || !is_idle(r))
        return NULL;
    if (r->asks) {
        PyErr_SetString(PyExc_RuntimeError, "A decision is asked for.");
        return NULL;
    }
    r->busy = 1;
    int failed = 0;
    for (; most > 0 && r->reason == GOES_ON && !r->asks && !failed; most--)
        failed = process_instant(r, interrupted) < 0;
    r->busy = 0;
    r->failed = failed;
    return failed ? NULL : progress_of(r);
}

PyDoc_STRVAR(asked_doc,
"asked()\n--\n\n"
"The decision that is asked for: idle nodes, numbers of the active tasks, nodes each holds, and its values (bytes of\n"
"float64) at 0 and at its minimum to maximum.");

static PyObject *asked(PyObject *self, PyObject *unused) {
    Replay *r = (Replay *)self;
    Active *a = &r->active;
    (void)unused;
    if (!is_idle(r))
        return NULL;
    if (!r->asks) {
        PyErr_SetString(PyExc_RuntimeError, "No decision is asked for.");
        return NULL;
    }
    PyObject *tasks = PyTuple_New(a->size), *held = PyTuple_New(a->size), *values = PyTuple_New(a->size);
    int failed = tasks == NULL || held == NULL || values == NULL;
    for (Py_ssize_t s = 0; s < a->size && !failed; s++) {
        const Task *task = r->tasks + a->task[s];
        Py_ssize_t width = (Py_ssize_t)task->most + 1, skipped = (Py_ssize_t)task->least - 1;
        double *row = grown(NULL, width, sizeof(double));
        PyObject *content = NULL;
        if (row != NULL) {
            option_values(r, s, width, row);
            row[skipped] = row[0];
            content = PyBytes_FromStringAndSize((char *)(row + skipped), (width - skipped) * (Py_ssize_t)sizeof *row);
        }
        free(row);
        failed = content == NULL || PyTuple_SetItem(values, s, content) < 0 ||
                 PyTuple_SetItem(tasks, s, PyLong_FromLong(a->task[s])) < 0 ||
                 PyTuple_SetItem(held, s, PyLong_FromLongLong(a->count[s])) < 0;
    }
    if (!failed)
        return Py_BuildValue("(LNNN)", (long long)r->pool, tasks, held, values);
    Py_XDECREF(tasks);
    Py_XDECREF(held);
    Py_XDECREF(values);
    return NULL;
}

/* Read the counts of an answer, and check that they are on offer and within the pool. */
static int read_counts(const Replay *r, PyObject *counts, int64_t *into) {
    const Active *a = &r->active;
    Py_ssize_t size = PySequence_Size(counts);
    int64_t left = r->pool;
    if (size != a->size)
        return PyErr_Occurred() ? -1 : refuse("a count for each active task");
    for (Py_ssize_t s = 0; s < size; s++) {
        const Task *task = r->tasks + a->task[s];
        PyObject *item = PySequence_GetItem(counts, s);
        into[s] = item == NULL ? -1 : PyLong_AsLongLong(item);
        Py_XDECREF(item);
        if (PyErr_Occurred())
            return -1;
        if (into[s] != 0 && (into[s] < task->least || into[s] > task->most))
            return refuse("counts that are on offer");
        left -= into[s];
    }
    return left < 0 ? refuse("counts within the pool") : 0;
}

PyDoc_STRVAR(answer_doc,
"answer(counts, value, bound, held, stop_reason, decided_by, solve_s)\n--\n\n"
"Answer the decision that is asked for; counts may be None, and the present allocation then stays.");

static PyObject *answer_method(PyObject *self, PyObject *args) {
    Replay *r = (Replay *)self;
    PyObject *counts;
    Answer answer;
    double solve_s;
    int held, reason, by;
    if (!PyArg_ParseTuple(
            args, "Oddiiid:answer", &counts, &answer.value, &answer.bound, &held, &reason, &by, &solve_s
        ) || !is_idle(r))
        return NULL;
    answer.by = (DecidedBy)by;
    if (!r->asks || (counts == Py_None) != (held == 2) || held < 0 || held > 2) {
        PyErr_SetString(PyExc_ValueError, "Expected an answer to what is asked, and counts if something is held.");
        return NULL;
    }
    answer.counts = grown(NULL, r->active.size, sizeof(int64_t));
    /* Items of a sequence may run Python code, which must not go on with this replay meanwhile. */
    r->busy = 1;
    int refused = answer.counts == NULL || (counts != Py_None && read_counts(r, counts, answer.counts) < 0);
    r->busy = 0;
    if (refused) {
        free(answer.counts);
        return NULL;
    }
    r->failed = record_decision(r, &answer, held, reason, 1, solve_s) < 0 || close_event(r) < 0;
    r->asks = 0;
    free(answer.counts);
    if (r->failed)
        return NULL;
    Py_RETURN_NONE;
}

PyDoc_STRVAR(columns_doc,
"columns()\n--\n\nWhat was recorded since the last call, as arrays by name; they are handed over, not copied.");

static PyObject *columns(PyObject *self, PyObject *unused) {
    Replay *r = (Replay *)self;
    (void)unused;
    PyObject *found = is_idle(r) ? PyDict_New() : NULL;
    for (int i = 0; found != NULL && i < COLUMNS; i++) {
        PyObject *array = taken_column(array_type, r->columns + i);
        if (array == NULL || PyDict_SetItemString(found, r->columns[i].name, array) < 0)
            Py_CLEAR(found);
        Py_XDECREF(array);
    }
    return found;
}

PyDoc_STRVAR(books_doc,
"books()\n--\n\nSums per task so far, as bytes of float64 or int64 by name.");

static PyObject *books(PyObject *self, PyObject *unused) {
    Replay *r = (Replay *)self;
    const Books *b = &r->books;
    (void)unused;
    if (!is_idle(r))
        return NULL;
    const struct { const char *name; const void *data; } all[] = {
        {"started_s", b->started_s}, {"completed_s", b->completed_s}, {"work", b->work}, {"node_s", b->node_s},
        {"rescales", b->rescales}, {"preemptions", b->preemptions}, {"rescale_cost", b->rescale_cost},
        {"preemption_cost", b->preemption_cost},
    };
    PyObject *found = PyDict_New();
    for (size_t i = 0; found != NULL && i < sizeof all / sizeof *all; i++) {
        PyObject *content = PyBytes_FromStringAndSize(all[i].data, r->task_count * 8);
        /* What an active task has done is its progress: sums of increments would carry rounding. */
        for (Py_ssize_t s = 0; all[i].data == b->work && content != NULL && s < r->active.size; s++)
            ((double *)PyBytes_AsString(content))[r->active.task[s]] = r->active.progress[s];
        if (content == NULL || PyDict_SetItemString(found, all[i].name, content) < 0)
            Py_CLEAR(found);
        Py_XDECREF(content);
    }
    return found;
}

PyDoc_STRVAR(saved_doc, "saved()\n--\n\nThe state between two instants, as bytes for `restore`.");

static PyObject *saved(PyObject *self, PyObject *unused) {
    Replay *r = (Replay *)self;
    (void)unused;
    if (!is_idle(r))
        return NULL;
    if (!r->asks)
        return saved_state(r);
    PyErr_SetString(PyExc_RuntimeError, "A decision is asked for.");
    return NULL;
}

PyDoc_STRVAR(restore_doc,
"restore(state)\n--\n\nGo on from the state that a replay of the same inputs has saved; this one must be new.");

static PyObject *restore(PyObject *self, PyObject *args) {
    Replay *r = (Replay *)self;
    PyObject *state;
    char *content;
    Py_ssize_t size;
    if (!PyArg_ParseTuple(args, "S:restore", &state) || PyBytes_AsStringAndSize(state, &content, &size) || !is_idle(r))
        return NULL;
    if (r->time_s > 0.0 || r->row > 0 || r->asks || r->reason != GOES_ON) {
        PyErr_SetString(PyExc_RuntimeError, "The replay has begun.");
        return NULL;
    }
    r->failed = restore_state(r, content, size) < 0;
    if (r->failed)
        return NULL;
    Py_RETURN_NONE;
}

/* The time of the last instant. */
static PyObject *get_time_s(PyObject *self, void *unused) {
    (void)unused;
    return PyFloat_FromDouble(((Replay *)self)->time_s);
}

/* Why the replay ended; empty before. */
static PyObject *get_reason(PyObject *self, void *unused) {
    static const char *names[] = {"", "finished", "window_end", "until", "max_events", "interrupted"};
    (void)unused;
    return PyUnicode_FromString(names[((Replay *)self)->reason]);
}

static PyMethodDef methods[] = {
    {"run", run, METH_VARARGS, run_doc},
    {"asked", asked, METH_NOARGS, asked_doc},
    {"answer", answer_method, METH_VARARGS, answer_doc},
    {"columns", columns, METH_NOARGS, columns_doc},
    {"books", books, METH_NOARGS, books_doc},
    {"saved", saved, METH_NOARGS, saved_doc},
    {"restore", restore, METH_VARARGS, restore_doc},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef getters[] = {
    {"time_s", get_time_s, NULL, "Time of the last instant.", NULL},
    {"reason", get_reason, NULL, "Why the replay ended; empty before.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot slots[] = {
    {Py_tp_new, new_replay},
    {Py_tp_dealloc, free_replay},
    {Py_tp_methods, methods},
    {Py_tp_getset, getters},
    {Py_tp_doc, "A replay of plain tasks under a static objective."},
    {0, NULL},
};

static PyType_Spec spec = {
    .name = "bftrainer._core._core.Replay",
    .basicsize = sizeof(Replay),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = slots,
};

/* Add the types of this file to the module. */
int add_replay_types(PyObject *module) {
    Py_XDECREF(array_type);
    array_type = column_type(module);
    PyObject *type = array_type ? PyType_FromModuleAndSpec(module, &spec, NULL) : NULL;
    int failed = type == NULL || PyModule_AddObjectRef(module, "Replay", type) < 0;
    Py_XDECREF(type);
    return failed ? -1 : 0;
}
