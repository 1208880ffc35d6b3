/* Columns of a recording: they grow while a replay runs, and are handed to Python without copying. */

#include "replay.h"

#include <stdlib.h>

static const struct {
    const char *name;
    char kind;
} SCHEMA[COLUMNS] = {
    [E_NUMBER] = {"event.number", 'q'},
    [E_TIME] = {"event.time_s", 'd'},
    [E_ELAPSED] = {"event.elapsed_s", 'd'},
    [E_GROSS] = {"event.gross", 'd'},
    [E_BOOKED] = {"event.rescale_booked", 'd'},
    [E_PREEMPTION] = {"event.preemption_cost", 'd'},
    [E_RATE] = {"event.rate", 'd'},
    [E_RESCALE] = {"event.rescale_cost", 'd'},
    [E_LEFT] = {"event.left", 'i'},
    [E_JOINED] = {"event.joined", 'i'},
    [E_PREEMPTED] = {"event.preempted", 'i'},
    [E_IDLE] = {"event.idle", 'i'},
    [E_RUNNING] = {"event.running", 'i'},
    [E_USED] = {"event.used", 'i'},
    [E_ACTIVE] = {"event.active", 'i'},
    [E_TASKS] = {"event.tasks", 'i'},
    [O_RECORD] = {"overrun.record", 'q'},
    [O_TASK] = {"overrun.task", 'i'},
    [O_RATE] = {"overrun.rate", 'd'},
    [O_REACHED] = {"overrun.reached_s", 'd'},
    [O_IDLE_FROM] = {"overrun.idle_from_s", 'd'},
    [D_RECORD] = {"decision.record", 'q'},
    [D_EVENT] = {"decision.event", 'q'},
    [D_TIME] = {"decision.time_s", 'd'},
    [D_NODES] = {"decision.nodes", 'i'},
    [D_VALUE] = {"decision.value", 'd'},
    [D_BOUND] = {"decision.bound", 'd'},
    [D_SOLVE] = {"decision.solve_s", 'd'},
    [D_REASON] = {"decision.stop_reason", 'B'},
    [D_HELD] = {"decision.held", 'B'},
    [D_BY] = {"decision.decided_by", 'B'},
    [D_ASKED] = {"decision.asked", 'B'},
    [D_BEFORE] = {"decision.before", 'i'},
    [D_AFTER] = {"decision.after", 'i'},
    [C_TIME] = {"change.time_s", 'd'},
    [C_TO] = {"change.task", 'i'},
    [C_SIZE] = {"change.size", 'i'},
    [C_NODES] = {"change.nodes", 'i'},
};

/* Bytes of a value of a kind. */
size_t item_size(char kind) {
    return kind == 'B' ? 1 : kind == 'i' ? 4 : 8;
}

/* Begin with empty columns. */
void name_columns(Column *columns) {
    for (int i = 0; i < COLUMNS; i++)
        columns[i] = (Column){.name = SCHEMA[i].name, .kind = SCHEMA[i].kind};
}

/* Room for `count` more values, which count as written; NULL if there is no memory. */
void *extend(Column *column, Py_ssize_t count) {
    size_t size = item_size(column->kind);
    if (column->data == NULL || column->count + count > column->room) {
        Py_ssize_t room = FIRST_MAX(column->room + column->room / 2 + 64, column->count + count);
        char *data = grown(column->data, room, size);
        if (data == NULL)
            return NULL;
        column->data = data;
        column->room = room;
    }
    void *place = column->data + (size_t)column->count * size;
    column->count += count;
    return place;
}

/* Append a float. */
int put_double(Column *column, double value) {
    double *place = extend(column, 1);
    if (place == NULL)
        return -1;
    *place = value;
    return 0;
}

/* Append a whole number to a column of whole numbers of any size. */
int put_int(Column *column, int64_t value) {
    void *place = extend(column, 1);
    if (place == NULL)
        return -1;
    if (column->kind == 'q')
        *(int64_t *)place = value;
    else if (column->kind == 'i')
        *(int32_t *)place = (int32_t)value;
    else
        *(uint8_t *)place = (uint8_t)value;
    return 0;
}

/* An array that owns the values of a column. */
typedef struct {
    PyObject_HEAD
    char *data;
    char format[2];
    Py_ssize_t count, stride;
} Array;

/* Lend the values. */
static int lend(PyObject *object, Py_buffer *view, int flags) {
    Array *array = (Array *)object;
    if (PyBuffer_FillInfo(view, object, array->data, array->count * array->stride, 0, flags) < 0)
        return -1;
    view->itemsize = array->stride;
    view->format = flags & PyBUF_FORMAT ? array->format : NULL;
    view->shape = flags & PyBUF_ND ? &array->count : NULL;
    view->strides = (flags & PyBUF_STRIDES) == PyBUF_STRIDES ? &array->stride : NULL;
    return 0;
}

/* Release the values. */
static void free_array(PyObject *object) {
    PyTypeObject *type = Py_TYPE(object);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    free(((Array *)object)->data);
    release(object);
    Py_DECREF(type);
}

static PyType_Slot array_slots[] = {
    {Py_bf_getbuffer, lend},
    {Py_tp_dealloc, free_array},
    {Py_tp_doc, "Values of a column, which `numpy.asarray` takes without copying."},
    {0, NULL},
};

static PyType_Spec array_spec = {
    .name = "bftrainer._core._core.Array",
    .basicsize = sizeof(Array),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = array_slots,
};

/* Make the type of arrays. */
PyObject *column_type(PyObject *module) {
    return PyType_FromModuleAndSpec(module, &array_spec, NULL);
}

/* Hand over what a column holds; it is empty then. */
PyObject *taken_column(PyObject *type, Column *column) {
    allocfunc allocate = (allocfunc)PyType_GetSlot((PyTypeObject *)type, Py_tp_alloc);
    Array *array = (Array *)allocate((PyTypeObject *)type, 0);
    if (array == NULL)
        return NULL;
    array->data = column->data;
    array->count = column->count;
    array->stride = (Py_ssize_t)item_size(column->kind);
    array->format[0] = column->kind;
    array->format[1] = '\0';
    column->data = NULL;
    column->count = column->room = 0;
    return (PyObject *)array;
}
