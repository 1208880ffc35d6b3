/* What the files of the compiled core share: problems, answers, and the steps that find them.

Every float is computed in the order in which the NumPy reference computes it (`solvers.dynamic_programme`,
`solvers.option_pruning`), so that results are the same to the last bit.
*/

#ifndef BFTRAINER_CORE_H
#define BFTRAINER_CORE_H

/* No format of Python's ends in '#': built with headers of 3.13, it would fail in 3.11, whose wheels are the same. */
#include <Python.h>

#include <math.h>
#include <stdint.h>

/* Python's `min` and `max`: the first argument unless the second is truly better, also where one is NaN. */
#define FIRST_MIN(a, b) ((b) < (a) ? (b) : (a))
#define FIRST_MAX(a, b) ((b) > (a) ? (b) : (a))

/* What a step ends with; at FAILED a Python error is set. */
typedef enum { DONE = 0, OUT_OF_TIME = 1, FAILED = -1 } Outcome;

/* What found an allocation: `solvers.problem.DecidedBy`, in its order. */
typedef enum { BY_TRIVIAL, BY_PRUNING, BY_SEARCH, BY_BACKEND, BY_REMEMBERED, BY_KEPT } DecidedBy;

/* Values at 0, 1, 2, ... nodes, one row per kind of task; -inf where a count is no option or exceeds the pool.

Tasks of one kind have the same values and hold as many nodes; `kind` has the kind of each task.
*/
typedef struct {
    Py_ssize_t tasks, kinds, width, *kind;
    int64_t nodes;
    double *values;
    int64_t *held;
} Problem;

/* Limits of one decision; the deadline is a time of `clock_s`. */
typedef struct {
    int prune;
    double gap, deadline_s;
} Effort;

/* Counts that a decision chose, one per task, in memory of the caller. */
typedef struct {
    int64_t *counts;
    double value, bound;
    DecidedBy by;
} Answer;

/* Options that pruning left (a mark per task and count), and a known allocation; in memory of the caller. */
typedef struct {
    uint8_t *kept;
    int64_t *counts;
    double bound;
    DecidedBy by;
} Pruned;

/* Relaxation of a table: see `solvers.option_pruning.Relaxation`.

Losses and choices are those of kinds, in memory of the caller.
*/
typedef struct {
    double price, bound, value;
    double *losses;
    int64_t *choices;
} Relaxed;

double clock_s(void);
void *grown(void *block, Py_ssize_t count, size_t size);
Outcome checkpoint(double deadline_s);

int new_problem(Problem *problem, Py_ssize_t tasks, int64_t nodes);
int set_width(Problem *problem, int64_t width);
void free_problem(Problem *problem);
void spread(const Problem *problem, const int64_t *of_kinds, int64_t *of_tasks);
int relax(const Problem *problem, const double *table, Relaxed *relaxed);
Outcome decide(const Problem *problem, Effort effort, Answer *answer);
Outcome prune(const Problem *problem, double deadline_s, Pruned *pruned);
int exact_sum(double *addends, Py_ssize_t count, double *sum);
double pairwise_sum(const double *addends, Py_ssize_t count);

#endif
