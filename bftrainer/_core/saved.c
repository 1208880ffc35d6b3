/* The state of a replay between two instants as bytes, to go on from later. */

#include "replay.h"

#include <stddef.h>
#include <string.h>

#define BUSY (-2)
#define UNHELD (-1)

typedef struct {
    void *data;
    Py_ssize_t size;
} Block;

enum { BLOCKS = 25 };

/* Everything that the state consists of, but for the sets of nodes, which follow from their owners. */
static void find_blocks(Replay *r, Block *blocks) {
    Active *a = &r->active;
    Books *b = &r->books;
    Py_ssize_t tasks = r->task_count, slots = r->max_tasks;
    const Block found[BLOCKS] = {
        {&r->time_s, offsetof(Replay, owner) - offsetof(Replay, time_s)}, {&r->is_first, sizeof r->is_first},
        {&a->size, sizeof a->size}, {r->due, tasks}, {r->owner, 4 * r->node_count}, {a->task, 4 * slots},
        {a->ends, slots}, {a->count, 8 * slots}, {a->lost, 8 * slots}, {a->after, 8 * slots}, {a->work, 8 * slots},
        {a->progress, 8 * slots}, {a->rate, 8 * slots}, {a->pending, 8 * slots}, {a->reached_s, 8 * slots},
        {a->gross, 8 * slots}, {a->preemption, 8 * slots}, {b->started_s, 8 * tasks}, {b->completed_s, 8 * tasks},
        {b->work, 8 * tasks}, {b->node_s, 8 * tasks}, {b->rescale_cost, 8 * tasks}, {b->preemption_cost, 8 * tasks},
        {b->rescales, 8 * tasks}, {b->preemptions, 8 * tasks},
    };
    memcpy(blocks, found, sizeof found);
}

/* Copy the state. */
PyObject *saved_state(Replay *r) {
    Block blocks[BLOCKS];
    Py_ssize_t size = 0;
    find_blocks(r, blocks);
    for (int i = 0; i < BLOCKS; i++)
        size += blocks[i].size;
    PyObject *content = PyBytes_FromStringAndSize(NULL, size);
    char *place = content ? PyBytes_AsString(content) : NULL;
    for (int i = 0; place != NULL && i < BLOCKS; place += blocks[i++].size)
        memcpy(place, blocks[i].data, (size_t)blocks[i].size);
    return content;
}

/* Whether all indices are within their arrays, and numbers of nodes are those of their owners. */
static int is_sound(const Replay *r) {
    const Active *a = &r->active;
    if (r->row < 0 || r->row > r->row_count || r->submitted < 0 || r->submitted > r->task_count || r->first_due < 0 ||
        r->first_due > r->task_count || r->due_count < 0 || r->due_count > r->task_count || r->remaining < 0 ||
        r->remaining > r->task_count || r->words != (r->node_count + 63) / 64 || a->size < 0 || a->size > r->max_tasks)
        return 0;
    int64_t pool = 0;
    Py_ssize_t due = 0;
    for (Py_ssize_t t = 0; t < r->task_count; t++)
        due += t >= r->first_due && r->due[t];
    for (Py_ssize_t s = 0; s < a->size; s++)
        if (a->task[s] < 0 || a->task[s] >= r->task_count || r->slot_of[a->task[s]] != -1)
            return 0;
        else
            r->slot_of[a->task[s]] = (int32_t)s;
    for (Py_ssize_t n = 0; n < r->node_count; n++) {
        int32_t owner = r->owner[n];
        if (owner < BUSY || owner >= r->task_count || (owner >= 0 && r->slot_of[owner] < 0))
            return 0;
        pool += owner != BUSY;
    }
    return pool == r->pool && due == r->due_count;
}

/* Make the sets of nodes, each with all of its words. */
static int find_nodes(Replay *r) {
    Active *a = &r->active;
    r->spare_count = 0;
    r->unheld.low = r->words;
    memset(r->unheld.words, 0, (size_t)r->words * 8);
    memset(r->memory, 0, (size_t)(r->max_tasks * r->words) * 8);
    for (Py_ssize_t s = r->max_tasks; s-- > 0;) {
        uint64_t *words = r->memory + s * r->words;
        if (s < a->size)
            a->nodes[s] = (NodeSet){.words = words, .low = r->words};
        else
            r->spare[r->spare_count++] = words;
        a->lost[s] = 0;
    }
    for (Py_ssize_t n = 0; n < r->node_count; n++) {
        int32_t owner = r->owner[n];
        if (owner != BUSY)
            add_node(owner == UNHELD ? &r->unheld : a->nodes + r->slot_of[owner], (int32_t)n);
        if (owner >= 0)
            a->lost[r->slot_of[owner]]++;
    }
    for (Py_ssize_t s = 0; s < a->size; a->lost[s++] = 0)
        if (a->lost[s] != a->count[s])
            return -1;
    return 0;
}

/* Go on from a state that was saved by a replay of the same inputs; -1 with an error set if it is not one. */
int restore_state(Replay *r, const char *content, Py_ssize_t size) {
    Block blocks[BLOCKS];
    Py_ssize_t wanted = 0;
    find_blocks(r, blocks);
    for (int i = 0; i < BLOCKS; i++)
        wanted += blocks[i].size;
    for (int i = 0; i < BLOCKS && size == wanted; content += blocks[i++].size)
        memcpy(blocks[i].data, content, (size_t)blocks[i].size);
    if (size == wanted && is_sound(r) && find_nodes(r) == 0)
        return 0;
    PyErr_SetString(PyExc_ValueError, "Expected the state of a replay of the same inputs.");
    return -1;
}
