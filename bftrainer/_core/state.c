/* The replay's state machine: one event at a time. See `bftrainer.replay.engine` and `bftrainer.replay.state`. */

#include "replay.h"

#include <stdlib.h>
#include <string.h>

#define BUSY (-2)
#define UNHELD (-1)
#define PROVEN_GAP 1e-9
#define VALUE_ROUNDING 0x1p-44

/* `solvers.problem.Held` and `solvers.problem.StopReason`, in their order. */
enum { HELD_OPTIMAL, HELD_INCUMBENT, HELD_NOTHING };
enum { STOPPED_OPTIMAL, STOPPED_BY_TIME };

/* Largest rounding difference between two computations of an instant: `bftrainer.model.rounding_s`. */
static double rounding_s(double time_s) {
    double above = nextafter(fabs(time_s), INFINITY);
    double last = isinf(above) ? (isinf(time_s) ? INFINITY : time_s - nextafter(time_s, 0.0)) : above - fabs(time_s);
    double bits = 4.0 * last;
    return FIRST_MAX(0.5e-9, bits);
}

/* Add a node to a set. */
void add_node(NodeSet *set, int32_t node) {
    Py_ssize_t word = node >> 6;
    set->words[word] |= (uint64_t)1 << (node & 63);
    set->low = FIRST_MIN(set->low, word);
}

/* Remove a node from a set. */
static void remove_node(NodeSet *set, int32_t node) {
    set->words[node >> 6] &= ~((uint64_t)1 << (node & 63));
}

/* Number of the lowest bit of a word that has one. */
static int lowest_bit(uint64_t word) {
#ifdef __GNUC__
    return __builtin_ctzll(word);
#else
    int bit = 0;
    while (!(word >> bit & 1))
        bit++;
    return bit;
#endif
}

/* Remove the `count` lowest nodes, or all, from a set into `nodes`, ascending; return how many there were. */
static Py_ssize_t take_lowest(NodeSet *set, Py_ssize_t words, int64_t count, int32_t *nodes) {
    Py_ssize_t taken = 0;
    while (set->low < words && taken < count) {
        uint64_t word = set->words[set->low];
        if (word == 0) {
            set->low++;
            continue;
        }
        nodes[taken++] = (int32_t)(set->low << 6) + lowest_bit(word);
        set->words[set->low] = word & (word - 1);
    }
    return taken;
}

/* Record that nodes go to a task, or to none (-1). */
static int record_change(Replay *r, int32_t to, const int32_t *nodes, Py_ssize_t size) {
    Column *c = r->columns;
    int32_t *place = extend(c + C_NODES, size);
    if (place == NULL || put_double(c + C_TIME, r->time_s) < 0 || put_int(c + C_TO, to) < 0 ||
        put_int(c + C_SIZE, size) < 0)
        return -1;
    memcpy(place, nodes, (size_t)size * sizeof(int32_t));
    return 0;
}

/* Compute when running tasks complete their work; return the first time, infinity if none runs. */
static double find_completions(Replay *r) {
    Active *a = &r->active;
    double first = INFINITY;
    for (Py_ssize_t s = 0; s < a->size; s++) {
        a->reached_s[s] = INFINITY;
        if (a->rate[s] > 0.0) {
            /* Rounding may leave progress slightly above the work: such a task completes now, not in the past. */
            double left_s = (a->work[s] - a->progress[s] + a->pending[s]) / a->rate[s];
            a->reached_s[s] = r->time_s + (left_s > 0.0 ? left_s : 0.0);
            first = FIRST_MIN(first, a->reached_s[s]);
        }
    }
    return first;
}

/* Time of the next instant, at most the end; marks the tasks that complete then. */
static double peek(Replay *r) {
    Active *a = &r->active;
    double upcoming = r->row < r->row_count ? r->row_s[r->row] : INFINITY;
    upcoming = FIRST_MIN(upcoming, r->end_s);
    upcoming = FIRST_MIN(upcoming, r->until_s);
    r->completing = 0;
    if (r->by_rows_only)
        return upcoming;
    if (r->submitted < r->task_count) {
        double submit_s = r->tasks[r->order[r->submitted]].submit_s;
        submit_s = FIRST_MAX(0.0, submit_s);
        upcoming = FIRST_MIN(upcoming, submit_s);
    }
    double first_s = find_completions(r), latest_s = first_s + rounding_s(first_s), same_s = rounding_s(upcoming);
    /* Completion times are computed, all others given: times that differ by rounding only are one instant. */
    if (first_s <= upcoming + same_s)
        for (Py_ssize_t s = 0; s < a->size; s++) {
            a->ends[s] = a->rate[s] > 0.0 && a->reached_s[s] <= latest_s;
            r->completing += a->ends[s];
        }
    return first_s < upcoming - same_s ? first_s : upcoming;
}

/* Count what the row's departures take from each task; nodes that leave must be idle, those that join must not. */
static int count_losses(Replay *r, int64_t from, int64_t to) {
    /* Rows were checked, but may be mapped from a file that another program has written to since. */
    if (from < 0 || to < from || to > r->transition_count) {
        PyErr_SetString(PyExc_ValueError, "Expected rows that stay as they are.");
        return -1;
    }
    r->open.left = r->open.joined = 0;
    for (int64_t i = from; i < to; i++) {
        int32_t node = r->row_node[i];
        int known = node >= 0 && node < r->node_count;
        int32_t owner = known ? r->owner[node] : UNHELD;
        if (!known || (owner == BUSY) != (r->row_idle[i] != 0)) {
            PyErr_Format(PyExc_ValueError, "Expected transition %lld to change a node's state.", (long long)i);
            return -1;
        }
        r->open.left += !r->row_idle[i];
        r->open.joined += r->row_idle[i] != 0;
        if (owner >= 0)
            r->active.lost[r->slot_of[owner]]++;
    }
    return 0;
}

/* Record a task that had done its work before `time_s`, which is noticed only now. */
static int record_overrun(Replay *r, Py_ssize_t s, double time_s, double begin_s) {
    Active *a = &r->active;
    Column *c = r->columns;
    double idle_from_s = begin_s + a->gross[s] / a->rate[s];
    return put_int(c + O_RECORD, r->record_count) < 0 || put_int(c + O_TASK, a->task[s]) < 0 ||
                   put_double(c + O_RATE, a->rate[s]) < 0 || put_double(c + O_REACHED, a->reached_s[s]) < 0 ||
                   put_double(c + O_IDLE_FROM, FIRST_MIN(time_s, idle_from_s)) < 0
               ? -1
               : 0;
}

/* Book the time since the last event to one task: progress, costs, and whether it ended. */
static void book(Replay *r, Py_ssize_t s, double time_s) {
    Active *a = &r->active;
    int32_t task = a->task[s];
    double elapsed_s = time_s - r->time_s, done = a->progress[s] + elapsed_s * a->rate[s] - a->pending[s];
    if (a->ends[s]) {
        done = a->work[s];
        a->lost[s] = 0;
    }
    a->preemption[s] = a->lost[s] ? r->tasks[task].shrink_s * a->rate[s] : 0.0;
    done -= a->preemption[s];
    if (r->noticed && done >= a->work[s] - rounding_s(time_s) * a->rate[s]) {
        done = a->work[s];
        a->ends[s] = 1;
    }
    /* Rounding at the end of a replay, and late reports, must not give more progress than work. */
    done = done < a->work[s] ? done : a->work[s];
    a->gross[s] = done - a->progress[s] + a->pending[s] + a->preemption[s];
    a->progress[s] = done;
    Books *b = &r->books;
    b->node_s[task] += (double)a->count[s] * elapsed_s;
    b->work[task] += a->gross[s] - a->pending[s] - a->preemption[s];
    b->rescale_cost[task] += a->pending[s];
    b->preemption_cost[task] += a->preemption[s];
    b->preemptions[task] += a->lost[s] > 0;
    r->open.preempted += a->lost[s] > 0;
    if (a->ends[s]) {
        b->completed_s[task] = time_s;
        /* Set exactly: sums of increments would carry rounding. */
        b->work[task] = a->work[s];
    }
}

/* Free the nodes of tasks that ended, in order of admission. */
static int release_ended(Replay *r) {
    Active *a = &r->active;
    for (Py_ssize_t s = 0; s < a->size; s++) {
        if (!a->ends[s])
            continue;
        Py_ssize_t size = take_lowest(a->nodes + s, r->words, r->node_count, r->moved);
        if (record_change(r, -1, r->moved, size) < 0)
            return -1;
        for (Py_ssize_t i = 0; i < size; i++) {
            r->owner[r->moved[i]] = UNHELD;
            add_node(&r->unheld, r->moved[i]);
        }
    }
    return 0;
}

/* Record what other tasks lose to departures, in order of their numbers. */
static int record_losses(Replay *r, int64_t from, int64_t to) {
    Active *a = &r->active;
    for (int32_t last = -1;;) {
        Py_ssize_t next = -1, size = 0;
        for (Py_ssize_t s = 0; s < a->size; s++)
            if (a->lost[s] && !a->ends[s] && a->task[s] > last && (next < 0 || a->task[s] < a->task[next]))
                next = s;
        if (next < 0)
            return 0;
        last = a->task[next];
        for (int64_t i = from; i < to; i++)
            if (!r->row_idle[i] && r->owner[r->row_node[i]] == last)
                r->moved[size++] = r->row_node[i];
        if (record_change(r, -1, r->moved, size) < 0)
            return -1;
    }
}

/* Move the row's nodes out of the pool and into it. */
static void move_nodes(Replay *r, int64_t from, int64_t to) {
    for (int64_t i = from; i < to; i++) {
        int32_t node = r->row_node[i], owner = r->owner[node];
        if (r->row_idle[i]) {
            r->owner[node] = UNHELD;
            add_node(&r->unheld, node);
        } else {
            remove_node(owner >= 0 ? r->active.nodes + r->slot_of[owner] : &r->unheld, node);
            r->owner[node] = BUSY;
        }
    }
    r->pool += r->open.joined - r->open.left;
}

/* Drop the tasks that ended; the others lose their nodes and wait for a decision. */
static void close_ranks(Replay *r) {
    Active *a = &r->active;
    Py_ssize_t kept = 0;
    for (Py_ssize_t s = 0; s < a->size; s++) {
        if (a->ends[s]) {
            r->spare[r->spare_count++] = a->nodes[s].words;
            r->slot_of[a->task[s]] = -1;
            r->remaining--;
            continue;
        }
        a->task[kept] = a->task[s];
        a->count[kept] = a->count[s] - a->lost[s];
        a->work[kept] = a->work[s];
        a->progress[kept] = a->progress[s];
        a->nodes[kept] = a->nodes[s];
        a->rate[kept] = a->pending[kept] = 0.0;
        r->slot_of[a->task[kept]] = (int32_t)kept;
        kept++;
    }
    a->size = kept;
}

/* Admit waiting tasks that are due, in file order, while there is room. */
static void admit(Replay *r) {
    Active *a = &r->active;
    while (r->submitted < r->task_count && r->tasks[r->order[r->submitted]].submit_s <= r->time_s) {
        Py_ssize_t task = (Py_ssize_t)r->order[r->submitted++];
        r->due[task] = 1;
        r->due_count++;
        r->first_due = FIRST_MIN(r->first_due, task);
    }
    for (; r->due_count && a->size < r->max_tasks; r->first_due++) {
        Py_ssize_t task = r->first_due, s = a->size;
        if (!r->due[task])
            continue;
        r->due[task] = 0;
        r->due_count--;
        r->slot_of[task] = (int32_t)s;
        a->task[s] = (int32_t)task;
        a->count[s] = 0;
        a->work[s] = r->tasks[task].work;
        a->progress[s] = a->rate[s] = a->pending[s] = 0.0;
        a->nodes[s] = (NodeSet){r->spare[--r->spare_count], r->words};
        a->size++;
    }
}

/* Book the time since the last event, then departures, completions, arrivals and admissions. */
static int apply(Replay *r, double time_s, int takes_row) {
    Active *a = &r->active;
    Open *open = &r->open;
    int64_t from = 0, to = 0;
    if (takes_row && r->row < r->row_count && r->row_s[r->row] <= time_s) {
        from = r->row_from[r->row];
        to = r->row_from[++r->row];
    }
    if (!r->completing)
        memset(a->ends, 0, (size_t)a->size);
    memset(a->lost, 0, (size_t)a->size * sizeof(int64_t));
    *open = (Open){.time_s = time_s, .elapsed_s = time_s - r->time_s};
    if (count_losses(r, from, to) < 0)
        return -1;
    if (r->noticed)
        find_completions(r);
    for (Py_ssize_t s = 0; s < a->size; s++) {
        book(r, s, time_s);
        if (r->noticed && a->reached_s[s] < time_s && record_overrun(r, s, time_s, r->time_s) < 0)
            return -1;
    }
    open->gross = pairwise_sum(a->gross, a->size);
    open->booked = pairwise_sum(a->pending, a->size);
    open->preemption = pairwise_sum(a->preemption, a->size);
    r->time_s = time_s;
    if (release_ended(r) < 0 || record_losses(r, from, to) < 0)
        return -1;
    move_nodes(r, from, to);
    close_ranks(r);
    Py_ssize_t submitted = r->submitted;
    admit(r);
    open->is_event = takes_row && (r->completing || from < to || (r->submitted > submitted && !r->by_rows_only));
    return 0;
}

/* Work per second of a task at a count; 0 below its minimum. */
static double rate_at(const Task *task, int64_t count) {
    return count >= task->least ? task->rates[count] : 0.0;
}

/* Work that going from one count to another costs. */
static double rescale_cost(const Replay *r, const Task *task, int64_t old, int64_t new) {
    if (old == new)
        return 0.0;
    if (old >= task->least)
        return task->rates[old] * (new > old ? task->grow_s : task->shrink_s);
    return r->full_startup && new > old ? task->rates[new] * task->grow_s : 0.0;
}

/* Give each active task its new count: shrinking ones give up their lowest nodes, growing ones take the lowest. */
int adopt(Replay *r, const int64_t *counts) {
    Active *a = &r->active;
    for (int grows = 0; grows < 2; grows++)
        for (Py_ssize_t s = 0; s < a->size; s++) {
            int64_t change = counts[s] - a->count[s];
            if (grows ? change <= 0 : change >= 0)
                continue;
            NodeSet *from = grows ? &r->unheld : a->nodes + s, *to = grows ? a->nodes + s : &r->unheld;
            int32_t task = a->task[s], owner = grows ? task : UNHELD;
            Py_ssize_t size = take_lowest(from, r->words, grows ? change : -change, r->moved);
            for (Py_ssize_t i = 0; i < size; i++) {
                r->owner[r->moved[i]] = owner;
                add_node(to, r->moved[i]);
            }
            if (record_change(r, grows ? task : -1, r->moved, size) < 0)
                return -1;
        }
    for (Py_ssize_t s = 0; s < a->size; s++) {
        const Task *task = r->tasks + a->task[s];
        Books *b = &r->books;
        a->pending[s] = rescale_cost(r, task, a->count[s], counts[s]);
        a->rate[s] = rate_at(task, counts[s]);
        if (a->rate[s] > 0.0 && isnan(b->started_s[a->task[s]]))
            b->started_s[a->task[s]] = r->time_s;
        b->rescales[a->task[s]] += counts[s] != a->count[s] && a->count[s] >= task->least;
    }
    return 0;
}

/* Record a decision, adopt it (the present allocation if nothing is held), and count it. */
int record_decision(Replay *r, const Answer *answer, int held, int reason, int asked, double solve_s) {
    Active *a = &r->active;
    Column *c = r->columns;
    if (held == HELD_NOTHING)
        for (Py_ssize_t s = 0; s < a->size; s++)
            a->after[s] = a->count[s] >= r->tasks[a->task[s]].least ? a->count[s] : 0;
    else
        memcpy(a->after, answer->counts, (size_t)a->size * sizeof(int64_t));
    if (adopt(r, a->after) < 0 || put_int(c + D_RECORD, r->record_count) < 0 ||
        put_int(c + D_EVENT, r->event_count) < 0 || put_double(c + D_TIME, r->time_s) < 0 ||
        put_int(c + D_NODES, r->pool) < 0 || put_double(c + D_VALUE, answer->value) < 0 ||
        put_double(c + D_BOUND, answer->bound) < 0 || put_double(c + D_SOLVE, solve_s) < 0 ||
        put_int(c + D_REASON, reason) < 0 || put_int(c + D_HELD, held) < 0 || put_int(c + D_BY, answer->by) < 0 ||
        put_int(c + D_ASKED, asked) < 0)
        return -1;
    for (Py_ssize_t s = 0; s < a->size; s++) {
        if (put_int(c + D_BEFORE, a->count[s]) < 0 || put_int(c + D_AFTER, a->after[s]) < 0)
            return -1;
        a->count[s] = a->after[s];
    }
    return 0;
}

/* Values of an active task at 0, 1, ... width - 1 nodes, at most its maximum: `bftrainer.replay.option_tables`. */
void option_values(const Replay *r, Py_ssize_t slot, Py_ssize_t width, double *row) {
    const Task *task = r->tasks + r->active.task[slot];
    int64_t held = r->active.count[slot], end = FIRST_MIN(task->most + 1, (int64_t)width);
    const double *credit = task->credits;
    for (int64_t n = 0; n < end; n++)
        row[n] = r->forward_s * credit[n];
    if (held >= task->least) {
        double shrinks = credit[held] * task->shrink_s, grows = credit[held] * task->grow_s;
        for (int64_t n = 0; n < FIRST_MIN(held, end); n++)
            row[n] -= shrinks;
        for (int64_t n = held + 1; n < end; n++)
            row[n] -= grows;
    } else if (r->full_startup) {
        for (int64_t n = held + 1; n < end; n++)
            row[n] -= credit[n] * task->grow_s;
    }
    for (int64_t n = 1; n < FIRST_MIN(task->least, end); n++)
        row[n] = -INFINITY;
}

/* Whether an allocation of this value is optimal, given the bound: `solvers.evaluation.proves`. */
static int proves(const Replay *r, const Problem *problem, const Answer *answer) {
    double excess = answer->bound - answer->value, size = 0.0;
    if (excess <= PROVEN_GAP * fabs(answer->value))
        return 1;
    if (!isfinite(excess))
        return 0;
    for (Py_ssize_t s = 0; s < problem->tasks; s++) {
        const Task *task = r->tasks + r->active.task[s];
        double *row = grown(NULL, (Py_ssize_t)task->most + 1, sizeof(double)), most = 0.0;
        if (row == NULL)
            return -1;
        option_values(r, s, (Py_ssize_t)task->most + 1, row);
        for (int64_t n = 0; n <= task->most; n++)
            if ((n == 0 || n >= task->least) && fabs(row[n]) > most)
                most = fabs(row[n]);
        free(row);
        size += most;
    }
    return excess <= VALUE_ROUNDING * size;
}

/* Tabulate the decision that is due. */
static int tabulate(Replay *r, Problem *problem) {
    int64_t most = 0;
    for (Py_ssize_t s = 0; s < r->active.size; s++)
        most = FIRST_MAX(most, r->tasks[r->active.task[s]].most);
    if (new_problem(problem, r->active.size, FIRST_MIN(r->pool, most) + 1, r->pool) < 0)
        return -1;
    for (Py_ssize_t s = 0; s < r->active.size; s++) {
        problem->held[s] = r->active.count[s];
        option_values(r, s, problem->width, problem->values + s * problem->width);
    }
    return 0;
}

/* Decide by pruning alone, if that leaves one allocation; `decided` says whether it does. */
static Outcome prune_to_one(const Problem *problem, double deadline_s, Answer *answer, int *decided) {
    Py_ssize_t entries = problem->tasks * problem->width, left = 0;
    Pruned pruned = {.kept = grown(NULL, entries, 1), .counts = answer->counts};
    double *worth = pruned.kept ? grown(NULL, problem->tasks, sizeof(double)) : NULL;
    Outcome outcome = worth ? prune(problem, deadline_s, &pruned) : FAILED;
    *decided = outcome == DONE;
    for (Py_ssize_t j = 0; j < problem->tasks && *decided; j++) {
        left = 0;
        for (Py_ssize_t n = 0; n < problem->width; n++)
            if (pruned.kept[j * problem->width + n]) {
                answer->counts[j] = n;
                worth[j] = problem->values[j * problem->width + n];
                left++;
            }
        *decided = left == 1;
    }
    if (*decided && exact_sum(worth, problem->tasks, &answer->value) < 0)
        outcome = FAILED;
    answer->bound = answer->value;
    answer->by = pruned.by;
    free(pruned.kept);
    free(worth);
    return outcome;
}

/* Decide in the core, or ask. */
static int decide_now(Replay *r) {
    double began_s = clock_s();
    Problem problem;
    Answer answer = {.value = NAN, .bound = INFINITY};
    if (r->decider == BY_PYTHON) {
        r->asks = 1;
        return 0;
    }
    if (tabulate(r, &problem) < 0)
        return -1;
    int held = HELD_OPTIMAL, decided = 1;
    Effort effort = r->effort;
    effort.deadline_s = began_s + r->time_limit_s;
    Outcome outcome = FAILED;
    answer.counts = grown(NULL, problem.tasks, sizeof(int64_t));
    if (answer.counts != NULL && r->decider == BY_PROGRAMME) {
        outcome = decide(&problem, effort, &answer);
        int proven = outcome == DONE ? proves(r, &problem, &answer) : 0;
        held = proven ? HELD_OPTIMAL : HELD_INCUMBENT;
        if (proven < 0)
            outcome = FAILED;
    } else if (answer.counts != NULL) {
        outcome = prune_to_one(&problem, effort.deadline_s, &answer, &decided);
    }
    if (outcome == OUT_OF_TIME) {
        answer = (Answer){.counts = answer.counts, .value = NAN, .bound = INFINITY, .by = BY_KEPT};
        held = HELD_NOTHING;
    }
    int failed = outcome == FAILED;
    if (!failed && !decided)
        r->asks = 1;
    else if (!failed)
        failed = record_decision(
            r, &answer, held, held == HELD_NOTHING ? STOPPED_BY_TIME : STOPPED_OPTIMAL, 0, clock_s() - began_s
        );
    free(answer.counts);
    free_problem(&problem);
    return failed ? -1 : 0;
}

/* Record the open event with the state that it ended in. */
int close_event(Replay *r) {
    Active *a = &r->active;
    Open *open = &r->open;
    Column *c = r->columns;
    int64_t running = 0, used = 0;
    int32_t *tasks = extend(c + E_TASKS, a->size);
    if (tasks == NULL)
        return -1;
    for (Py_ssize_t s = 0; s < a->size; s++) {
        tasks[s] = a->task[s];
        running += a->rate[s] != 0.0;
        used += a->count[s];
    }
    const struct { int column; double value; } floats[] = {
        {E_TIME, open->time_s}, {E_ELAPSED, open->elapsed_s}, {E_GROSS, open->gross}, {E_BOOKED, open->booked},
        {E_PREEMPTION, open->preemption}, {E_RATE, pairwise_sum(a->rate, a->size)},
        {E_RESCALE, pairwise_sum(a->pending, a->size)},
    };
    const struct { int column; int64_t value; } whole[] = {
        {E_NUMBER, open->is_event ? r->event_count : -1}, {E_LEFT, open->left}, {E_JOINED, open->joined},
        {E_PREEMPTED, open->preempted}, {E_IDLE, r->pool}, {E_RUNNING, running}, {E_USED, used}, {E_ACTIVE, a->size},
    };
    for (size_t i = 0; i < sizeof floats / sizeof *floats; i++)
        if (put_double(c + floats[i].column, floats[i].value) < 0)
            return -1;
    for (size_t i = 0; i < sizeof whole / sizeof *whole; i++)
        if (put_int(c + whole[i].column, whole[i].value) < 0)
            return -1;
    r->event_count += open->is_event;
    r->record_count++;
    return 0;
}

/* Whether to stop before the event at `time_s`, and why; -1 with an error set if asking failed. */
static int stops(Replay *r, double time_s, PyObject *interrupted) {
    PyObject *answer = interrupted == Py_None ? NULL : PyObject_CallNoArgs(interrupted);
    if (interrupted != Py_None && answer == NULL)
        return -1;
    int truth = answer == NULL ? 0 : PyObject_IsTrue(answer);
    Py_XDECREF(answer);
    if (truth)
        return truth < 0 ? -1 : INTERRUPTED;
    if (r->max_events >= 0 && r->event_count >= r->max_events)
        return MAX_EVENTS;
    if (time_s >= FIRST_MIN(r->end_s, r->until_s))
        return r->until_s < r->end_s ? UNTIL : WINDOW_END;
    return GOES_ON;
}

/* Process one instant, up to a question to Python if there is one. */
int process_instant(Replay *r, PyObject *interrupted) {
    double time_s = peek(r);
    int reason = stops(r, time_s, interrupted);
    if (reason < 0 || PyErr_CheckSignals() < 0)
        return -1;
    /* At the end, time is booked and events are recorded, but nothing is decided any more. */
    if (apply(r, time_s, reason == GOES_ON || reason == UNTIL || reason == WINDOW_END) < 0)
        return -1;
    if (reason == GOES_ON && r->active.size == 0 && r->remaining == 0)
        reason = FINISHED;
    r->reason = (EndReason)reason;
    if (reason == GOES_ON && r->pool > 0 && r->active.size > 0) {
        int leaves_empty = r->is_first && r->first_empty;
        r->is_first = 0;
        if (!leaves_empty && decide_now(r) < 0)
            return -1;
    }
    return r->asks ? 0 : close_event(r);
}
