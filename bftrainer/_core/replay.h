/* State of a replay in the compiled core, and the columns in which it is recorded. */

#ifndef BFTRAINER_REPLAY_H
#define BFTRAINER_REPLAY_H

#include "core.h"

/* Values of one kind (d, q, i or B, as in Python's `struct`) that grow in number. */
typedef struct {
    const char *name;
    char kind;
    Py_ssize_t count, room;
    char *data;
} Column;

enum { /* events, one row each; `tasks` has `active` entries a row */
    E_NUMBER, E_TIME, E_ELAPSED, E_GROSS, E_BOOKED, E_PREEMPTION, E_RATE, E_RESCALE, E_LEFT, E_JOINED, E_PREEMPTED,
    E_IDLE, E_RUNNING, E_USED, E_ACTIVE, E_TASKS,
    /* tasks that were done before an event noticed it */
    O_RECORD, O_TASK, O_RATE, O_REACHED, O_IDLE_FROM,
    /* decisions; `before` and `after` have an entry for each active task of their event */
    D_RECORD, D_EVENT, D_TIME, D_NODES, D_VALUE, D_BOUND, D_SOLVE, D_REASON, D_HELD, D_BY, D_ASKED, D_BEFORE, D_AFTER,
    /* nodes that change hands: `nodes` has `size` entries a row */
    C_TIME, C_TO, C_SIZE, C_NODES,
    COLUMNS
};

/* Why a replay ended. */
typedef enum { GOES_ON, FINISHED, WINDOW_END, UNTIL, MAX_EVENTS, INTERRUPTED } EndReason;

/* What is asked for decisions: the programme, exact pruning and then Python, or Python. */
typedef enum { BY_PROGRAMME, BY_PRUNING, BY_PYTHON } Decider;

/* A set of nodes; no word before `low` has a bit. */
typedef struct {
    uint64_t *words;
    Py_ssize_t low;
} NodeSet;

/* Sums per task. */
typedef struct {
    double *started_s, *completed_s, *work, *node_s, *rescale_cost, *preemption_cost;
    int64_t *rescales, *preemptions;
} Books;

/* Active tasks, in order of admission: arrays of one entry each. */
typedef struct {
    Py_ssize_t size;
    int32_t *task;
    int64_t *count, *lost, *after;
    double *work, *progress, *rate, *pending, *reached_s, *gross, *preemption;
    uint8_t *ends;
    NodeSet *nodes;
} Active;

/* The event that is being recorded. */
typedef struct {
    int is_event;
    double time_s, elapsed_s, gross, booked, preemption;
    int32_t left, joined, preempted;
} Open;

/* A task's fixed data. */
typedef struct {
    int64_t least, most;
    double submit_s, work, grow_s, shrink_s;
    const double *credits, *rates;
} Task;

typedef struct {
    PyObject_HEAD
    /* Inputs: borrowed arrays, and settings. */
    Py_buffer *views;
    Py_ssize_t view_count;
    const double *row_s;
    const int64_t *row_from, *order;
    const int32_t *row_node;
    const uint8_t *row_idle;
    Py_ssize_t row_count, transition_count, node_count, task_count, max_tasks;
    Task *tasks;
    double end_s, until_s, forward_s, time_limit_s;
    long long max_events;
    Effort effort;
    int by_rows_only, noticed, full_startup, first_empty, decider;
    /* State. */
    double time_s;
    Py_ssize_t row, submitted, first_due, due_count, remaining, words, spare_count;
    int64_t pool, event_count, record_count, completing;
    int32_t *owner, *slot_of, *moved;
    uint8_t *due;
    uint64_t *memory, **spare;
    NodeSet unheld;
    Active active;
    Books books;
    Open open;
    EndReason reason;
    int is_first, asks, busy, failed;
    Column columns[COLUMNS];
} Replay;

/* Append to columns; -1 with an error set if there is no memory. */
void *extend(Column *column, Py_ssize_t count);
int put_double(Column *column, double value);
int put_int(Column *column, int64_t value);
void name_columns(Column *columns);
size_t item_size(char kind);
PyObject *taken_column(PyObject *module_state_type, Column *column);
PyObject *column_type(PyObject *module);

/* The state machine. */
int process_instant(Replay *r, PyObject *interrupted);
int adopt(Replay *r, const int64_t *counts);
int record_decision(Replay *r, const Answer *answer, int held, int reason, int asked, double solve_s);
int close_event(Replay *r);
void add_node(NodeSet *set, int32_t node);

/* The state between two instants as bytes. */
PyObject *saved_state(Replay *r);
int restore_state(Replay *r, const char *content, Py_ssize_t size);
void option_values(const Replay *r, Py_ssize_t slot, Py_ssize_t width, double *row);

#endif
