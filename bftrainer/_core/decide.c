/* One decision: Lagrangian bound, windows of counts, max-plus convolutions, ties. See `solvers.dynamic_programme`. */

#include "core.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#define TIE_SHARE 0x1p-36
#define CERTIFIED_GAP 1e-9
#define ROUNDING 0x1p-40
/* What breaking ties costs, as a share of the scale, beyond what sums of floats do. */
#define LOST_BY_ROUNDING 0x1p-44
#define FIRST_BUDGET 0.02
#define GROWTH 4.0
#define CUTTING_PLANES 60
#define UNCHECKED (1 << 16) /* sums between two looks at the clock */
#define LANES 8
#define MOST_LANES 32

/* Loops that take most of the time are compiled for wider registers as well: the same operations, so the same bits. */
#if defined(__x86_64__) && defined(__gnu_linux__) && defined(__GNUC__) && !defined(__clang__)
#define WIDE __attribute__((target_clones("default", "avx2")))
#else
#define WIDE
#endif

/* Seconds of a clock that never goes back. */
double clock_s(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* Memory of `count` items, at least one; NULL with an error set if there is not so much. */
void *grown(void *block, Py_ssize_t count, size_t size) {
    size_t items = count < 1 ? 1 : (size_t)count;
    void *memory = items > PY_SSIZE_T_MAX / size ? NULL : realloc(block, items * size);
    if (memory == NULL)
        PyErr_NoMemory();
    return memory;
}

/* Whether to go on: signals are handled here, so that Ctrl-C ends long work. */
Outcome checkpoint(double deadline_s) {
    if (PyErr_CheckSignals() < 0)
        return FAILED;
    return clock_s() > deadline_s ? OUT_OF_TIME : DONE;
}

/* Make a problem of tasks whose kinds and values are not known yet. */
int new_problem(Problem *problem, Py_ssize_t tasks, int64_t nodes) {
    *problem = (Problem){.tasks = tasks, .nodes = nodes};
    problem->kind = grown(NULL, tasks, sizeof(Py_ssize_t));
    problem->held = problem->kind ? grown(NULL, tasks, sizeof(int64_t)) : NULL;
    if (problem->held == NULL) {
        free_problem(problem);
        return -1;
    }
    return 0;
}

/* Make room for the values of all kinds, whose number is known, at `width` counts. */
int set_width(Problem *problem, int64_t width) {
    if (width > INT32_MAX || width > PY_SSIZE_T_MAX / problem->tasks) {
        PyErr_NoMemory();
        return -1;
    }
    problem->width = (Py_ssize_t)width;
    problem->values = grown(NULL, problem->kinds * problem->width, sizeof(double));
    return problem->values == NULL ? -1 : 0;
}

/* Release what `new_problem` and `set_width` made. */
void free_problem(Problem *problem) {
    free(problem->values);
    free(problem->held);
    free(problem->kind);
}

/* Give each task what its kind has. */
void spread(const Problem *problem, const int64_t *of_kinds, int64_t *of_tasks) {
    for (Py_ssize_t j = 0; j < problem->tasks; j++)
        of_tasks[j] = of_kinds[problem->kind[j]];
}

/* Sum as `math.fsum`, correctly rounded; the addends are overwritten with partial sums. Fails on overflow. */
int exact_sum(double *addends, Py_ssize_t count, double *sum) {
    /* There are never more partial sums than addends read, so both fit into one array. */
    Py_ssize_t partials = 0;
    for (Py_ssize_t at = 0; at < count; at++) {
        double x = addends[at];
        Py_ssize_t kept = 0;
        for (Py_ssize_t j = 0; j < partials; j++) {
            double y = addends[j];
            if (fabs(x) < fabs(y)) {
                double swapped = x;
                x = y;
                y = swapped;
            }
            double high = x + y, rounded = high - x, low = y - rounded;
            if (low != 0.0)
                addends[kept++] = low;
            x = high;
        }
        if (!isfinite(x)) {
            PyErr_SetString(PyExc_OverflowError, "intermediate overflow in fsum");
            return -1;
        }
        if (x != 0.0)
            addends[kept++] = x;
        partials = kept;
    }
    double high = partials ? addends[--partials] : 0.0, low = 0.0;
    while (partials > 0) {
        double x = high, y = addends[--partials];
        high = x + y;
        low = y - (high - x);
        if (low != 0.0)
            break;
    }
    /* Half-even rounding needs the sign of what is left. */
    if (partials > 0 && ((low < 0.0 && addends[partials - 1] < 0.0) || (low > 0.0 && addends[partials - 1] > 0.0))) {
        double y = low * 2.0, x = high + y;
        if (y == x - high)
            high = x;
    }
    *sum = high;
    return 0;
}

/* Sum in the order of `numpy.sum`: eight running sums, halves of long arrays apart. */
double pairwise_sum(const double *addends, Py_ssize_t count) {
    if (count < 8) {
        double sum = 0.0;
        for (Py_ssize_t i = 0; i < count; i++)
            sum += addends[i];
        return sum;
    }
    if (count <= 128) {
        double lane[8];
        Py_ssize_t i = 8;
        memcpy(lane, addends, sizeof lane);
        for (; i < count - count % 8; i += 8)
            for (int k = 0; k < 8; k++)
                lane[k] += addends[i + k];
        double sum = ((lane[0] + lane[1]) + (lane[2] + lane[3])) + ((lane[4] + lane[5]) + (lane[6] + lane[7]));
        for (; i < count; i++)
            sum += addends[i];
        return sum;
    }
    Py_ssize_t half = count / 2;
    half -= half % 8;
    return pairwise_sum(addends, half) + pairwise_sum(addends + half, count - half);
}

/* Index of the first largest entry. */
WIDE static Py_ssize_t first_largest(const double *row, Py_ssize_t width) {
    double lane[LANES], most = row[0];
    Py_ssize_t i = 0;
    if (width >= LANES) {
        memcpy(lane, row, sizeof lane);
        for (i = LANES; i + LANES <= width; i += LANES)
            for (int k = 0; k < LANES; k++)
                lane[k] = row[i + k] > lane[k] ? row[i + k] : lane[k];
        for (int k = 0; k < LANES; k++)
            most = lane[k] > most ? lane[k] : most;
    }
    for (; i < width; i++)
        most = row[i] > most ? row[i] : most;
    for (i = 0; i < width; i++)
        if (row[i] == most)
            return i;
    return 0;
}

/* Nodes and value of what each task chooses at a price. */
typedef struct {
    int64_t used;
    double value;
} Point;

/* A kind's gain per node, and the nodes of all its tasks. */
typedef struct {
    double slope;
    int64_t count;
} Slope;

/* Order slopes from the steepest down; of equal ones, the longest first. */
static int by_slope(const void *left, const void *right) {
    const Slope *a = left, *b = right;
    if (a->slope != b->slope)
        return a->slope < b->slope ? 1 : -1;
    return (a->count < b->count) - (a->count > b->count);
}

/* Guess the node price: serve tasks of constant gain per node, best first. */
static double first_guess(const Problem *problem, const double *table, const int64_t *most, Slope *slopes) {
    int64_t nodes = problem->nodes;
    for (Py_ssize_t k = 0; k < problem->kinds; k++) {
        const double *row = table + k * problem->width;
        slopes[k] = (Slope){most[k] ? (row[most[k]] - row[0]) / (double)most[k] : 0.0, 0};
    }
    for (Py_ssize_t j = 0; j < problem->tasks; j++)
        slopes[problem->kind[j]].count += most[problem->kind[j]];
    qsort(slopes, (size_t)problem->kinds, sizeof(Slope), by_slope);
    for (Py_ssize_t i = 0; i < problem->kinds; i++) {
        nodes -= slopes[i].count;
        if (nodes < 0)
            return slopes[i].slope;
    }
    return 0.0;
}

/* Add up what all tasks choose, in their order. */
static Point sum_choices(const Problem *problem, const double *table, const int64_t *chosen) {
    Point point = {0, 0.0};
    for (Py_ssize_t j = 0; j < problem->tasks; j++) {
        Py_ssize_t kind = problem->kind[j];
        point.used += chosen[kind];
        point.value += table[kind * problem->width + chosen[kind]];
    }
    return point;
}

/* Let each kind choose if a node costs `price`; `reduced` gets its values less that, `best` the largest of each. */
WIDE static Point choose_at(
    const Problem *problem, const double *table, double price, double *reduced, int64_t *chosen, double *best
) {
    Py_ssize_t width = problem->width;
    for (Py_ssize_t k = 0; k < problem->kinds; k++) {
        const double *from = table + k * width;
        double *to = reduced + k * width;
        for (Py_ssize_t c = 0; c < width; c++)
            to[c] = from[c] - (double)(int32_t)c * price;
        chosen[k] = first_largest(to, width);
        best[k] = to[chosen[k]];
    }
    return sum_choices(problem, table, chosen);
}

/* Run cutting planes from a first price on; the last price is left in `relaxed`, as are the choices that fit. */
static void meet(
    const Problem *problem, const double *table, Point over, Point fit, Relaxed *relaxed, int64_t *chosen, double *best
) {
    double price = relaxed->price, target = -INFINITY;
    for (int round = 0; round < CUTTING_PLANES; round++) {
        relaxed->price = price;
        Point point = choose_at(problem, table, price, relaxed->losses, chosen, best);
        if (point.used > problem->nodes) {
            over = point;
        } else {
            fit = point;
            memcpy(relaxed->choices, chosen, (size_t)problem->kinds * sizeof(int64_t));
        }
        /* The bound is convex and piecewise linear: done where both lines of the bracket meet it. */
        if (point.used == problem->nodes || point.value - price * (double)point.used <= target)
            break;
        price = (over.value - fit.value) / (double)(over.used - fit.used);
        target = over.value - price * (double)over.used + 1e-13 * fabs(over.value);
    }
    relaxed->value = fit.value;
}

/* Minimise the bound of a table over the price of a node. */
int relax(const Problem *problem, const double *table, Relaxed *relaxed) {
    Py_ssize_t tasks = problem->tasks, kinds = problem->kinds, width = problem->width;
    int64_t *chosen = grown(NULL, kinds, sizeof(int64_t));
    double *best = chosen ? grown(NULL, kinds, sizeof(double)) : NULL;
    Slope *slopes = best ? grown(NULL, kinds, sizeof(Slope)) : NULL;
    if (slopes == NULL) {
        free(chosen);
        free(best);
        return -1;
    }
    for (Py_ssize_t k = 0; k < kinds; k++) {
        chosen[k] = first_largest(table + k * width, width);
        best[k] = table[k * width + chosen[k]];
        relaxed->choices[k] = 0;
    }
    Point over = sum_choices(problem, table, chosen);
    relaxed->price = 0.0;
    if (over.used <= problem->nodes) {
        memcpy(relaxed->choices, chosen, (size_t)kinds * sizeof(int64_t));
        memcpy(relaxed->losses, table, (size_t)(kinds * width) * sizeof(double));
        relaxed->bound = relaxed->value = over.value;
    } else {
        relaxed->price = first_guess(problem, table, chosen, slopes);
        meet(problem, table, over, sum_choices(problem, table, relaxed->choices), relaxed, chosen, best);
        double sum = 0.0;
        for (Py_ssize_t j = 0; j < tasks; j++)
            sum += best[problem->kind[j]];
        relaxed->bound = sum + relaxed->price * (double)problem->nodes;
    }
    for (Py_ssize_t k = 0; k < kinds; k++) {
        double *losses = relaxed->losses + k * width;
        for (Py_ssize_t c = 0; c < width; c++)
            losses[c] = best[k] - losses[c];
    }
    free(chosen);
    free(best);
    free(slopes);
    return 0;
}

/* Arrays of one decision, and what its passes share: values, windows and known choices of kinds. */
typedef struct {
    const Problem *problem;
    Effort effort;
    double scale, gap, lost;
    double *favoured, *losses, *worth, *rows;
    int64_t *low, *high, *known;
    Py_ssize_t *free_tasks;
    DecidedBy by;
} Programme;

/* Value of counts, as `solvers.evaluation.objective`. */
static int worth_of(Programme *p, const double *values, const int64_t *counts, double *value) {
    for (Py_ssize_t j = 0; j < p->problem->tasks; j++)
        p->worth[j] = values[p->problem->kind[j] * p->problem->width + counts[j]];
    return exact_sum(p->worth, p->problem->tasks, value);
}

/* ``row[s] = max_n below[s - n] + column[n]`` for ``0 <= s < lanes``, a constant where it is called. */
static inline void convolve_lanes(
    const double *below, double *row, const double *column, Py_ssize_t size, Py_ssize_t lanes
) {
    double best[MOST_LANES];
    for (Py_ssize_t k = 0; k < lanes; k++)
        best[k] = below[k] + column[0];
    for (Py_ssize_t n = 1; n < size; n++)
        for (Py_ssize_t k = 0; k < lanes; k++) {
            double candidate = below[k - n] + column[n];
            best[k] = candidate > best[k] ? candidate : best[k];
        }
    memcpy(row, best, (size_t)lanes * sizeof(double));
}

/* The same for ``start <= s < stop``. */
WIDE static void convolve(
    const double *below, double *row, const double *column, Py_ssize_t size, Py_ssize_t start, Py_ssize_t stop
) {
    Py_ssize_t s = start;
    for (; s + MOST_LANES <= stop; s += MOST_LANES)
        convolve_lanes(below + s, row + s, column, size, MOST_LANES);
    for (; s + LANES <= stop; s += LANES)
        convolve_lanes(below + s, row + s, column, size, LANES);
    for (; s < stop; s++)
        convolve_lanes(below + s, row + s, column, size, 1);
}

/* Compute the rows of f_j, j >= 1, of `count` free tasks: `pad` entries of -inf, the states, `pad` unused entries. */
static Outcome forward(Programme *p, Py_ssize_t count, Py_ssize_t nodes, Py_ssize_t pad, Py_ssize_t earlier) {
    Py_ssize_t length = pad + nodes + pad, later = 0, unchecked = UNCHECKED;
    if (length > PY_SSIZE_T_MAX / (count + 1)) {
        PyErr_NoMemory();
        return FAILED;
    }
    double *rows = grown(p->rows, (count + 1) * length, sizeof(double));
    if (rows == NULL)
        return FAILED;
    p->rows = rows;
    for (Py_ssize_t j = 0; j <= count; j++)
        for (Py_ssize_t i = 0; i < pad; i++)
            rows[j * length + i] = -INFINITY;
    for (Py_ssize_t i = pad; i < length; i++)
        rows[count * length + i] = 0.0;
    for (Py_ssize_t j = count - 1; j > 0; j--) {
        Py_ssize_t kind = p->problem->kind[p->free_tasks[j]], size = (Py_ssize_t)(p->high[kind] - p->low[kind]) + 1;
        const double *column = p->favoured + kind * p->problem->width + p->low[kind];
        double *row = rows + j * length;
        later += size - 1;
        earlier -= size - 1;
        /* Fewer nodes than `start` are never left for these tasks, and more than `later` they cannot use. */
        Py_ssize_t start = pad + FIRST_MAX(0, nodes - earlier), stop = pad + FIRST_MIN(nodes, later) + 1;
        if (later == size - 1) {
            /* The last task alone: the best of the counts up to each state. */
            row[pad] = column[0];
            for (Py_ssize_t n = 1; n < size && pad + n < length; n++)
                row[pad + n] = column[n] > row[pad + n - 1] ? column[n] : row[pad + n - 1];
        } else {
            for (Py_ssize_t from = start; from < stop; from += 4096) {
                Py_ssize_t until = FIRST_MIN(stop, from + 4096);
                convolve(row + length, row, column, size, from, until);
                unchecked += (until - from) * size;
                Outcome outcome = unchecked < UNCHECKED ? DONE : checkpoint(p->effort.deadline_s);
                if (outcome != DONE)
                    return outcome;
                unchecked = unchecked < UNCHECKED ? unchecked : 0;
            }
        }
        for (Py_ssize_t i = stop; i < stop + pad - 1; i++)
            row[i] = row[stop - 1];
    }
    return DONE;
}

/* Read off counts from the first task on, each the largest that costs at most the rest of `slack`; return the total. */
static double walk_back(
    Programme *p, Py_ssize_t count, Py_ssize_t nodes, Py_ssize_t pad, Py_ssize_t left, double slack, int64_t *counts
) {
    Py_ssize_t length = pad + nodes + pad, state = nodes;
    double total = NAN;
    for (Py_ssize_t j = 0; j < count; j++) {
        Py_ssize_t task = p->free_tasks[j], kind = p->problem->kind[task];
        Py_ssize_t most = (Py_ssize_t)(p->high[kind] - p->low[kind]), taken = most;
        const double *column = p->favoured + kind * p->problem->width + p->low[kind];
        const double *below = p->rows + (j + 1) * length + pad + state;
        double best = j ? p->rows[j * length + pad + state] : below[-most] + column[most];
        if (j == 0) {
            for (Py_ssize_t n = most - 1; n >= 0; n--)
                best = below[-n] + column[n] > best ? below[-n] + column[n] : best;
            total = best;
        }
        for (Py_ssize_t n = most; n >= 0; n--)
            if (below[-n] + column[n] >= best - slack) {
                taken = n;
                break;
            }
        slack -= best - (below[-taken] + column[taken]);
        p->lost += best - (below[-taken] + column[taken]);
        left -= most;
        counts[task] += taken;
        state = FIRST_MIN(state - taken, left);
    }
    return total;
}

/* Best counts within ``low <= n <= high``, the largest that cost at most `slack`, and their value. */
static Outcome best_in(Programme *p, double slack, int64_t *counts, double *value) {
    Py_ssize_t tasks = p->problem->tasks, fixed = 0, count = 0, pad = 0, room = 0;
    int64_t left = p->problem->nodes;
    p->lost = 0.0;
    for (Py_ssize_t j = 0; j < tasks; j++) {
        Py_ssize_t kind = p->problem->kind[j], size = (Py_ssize_t)(p->high[kind] - p->low[kind]) + 1;
        counts[j] = p->low[kind];
        left -= p->low[kind];
        if (size > 1) {
            p->free_tasks[count++] = j;
            room += size - 1;
            pad = FIRST_MAX(pad, size);
        } else {
            p->worth[fixed++] = p->favoured[kind * p->problem->width + p->low[kind]];
        }
    }
    if (exact_sum(p->worth, fixed, value) < 0)
        return FAILED;
    if (count == 0)
        return DONE;
    /* More nodes than all tasks together can use change nothing. */
    Py_ssize_t nodes = (Py_ssize_t)FIRST_MIN(left, (int64_t)room);
    Outcome outcome = forward(p, count, nodes, pad, room);
    if (outcome == DONE)
        *value = *value + walk_back(p, count, nodes, pad, room, slack, counts);
    return outcome;
}

/* Whether counts are within the requested gap of a bound: 1, 0, or -1 if that fails. */
static int is_enough(Programme *p, const int64_t *counts, double bound) {
    double value;
    if (worth_of(p, p->problem->values, counts, &value) < 0)
        return -1;
    return bound - value <= p->gap * fabs(value);
}

/* Set windows to the counts that lose at most `budget`; return the sum of their lower ends. */
static int64_t set_windows(Programme *p, double budget) {
    Py_ssize_t width = p->problem->width;
    int64_t sum = 0;
    for (Py_ssize_t k = 0; k < p->problem->kinds; k++) {
        const double *losses = p->losses + k * width;
        Py_ssize_t low = 0, high = width - 1;
        while (low < width && !(losses[low] <= budget))
            low++;
        while (high >= 0 && !(losses[high] <= budget))
            high--;
        p->low[k] = low < width ? low : 0;
        p->high[k] = high >= 0 ? high : width - 1;
    }
    for (Py_ssize_t j = 0; j < p->problem->tasks; j++)
        sum += p->low[p->problem->kind[j]];
    return sum;
}

/* Find the best among counts of small loss against the Lagrangian bound, widened until that is proven enough. */
static Outcome best_in_windows(Programme *p, double bonus, int64_t *counts, double *bound) {
    Relaxed relaxed = {.losses = p->losses, .choices = p->known};
    if (relax(p->problem, p->favoured, &relaxed) < 0)
        return FAILED;
    if (p->gap > 0.0) {
        spread(p->problem, relaxed.choices, counts);
        int enough = is_enough(p, counts, relaxed.bound);
        if (enough) {
            p->by = BY_SEARCH;
            *bound = relaxed.bound;
            return enough < 0 ? FAILED : DONE;
        }
    }
    /* Counts that tie within the slack, or differ by rounding alone, must be inside as well. */
    double margin = bonus + ROUNDING * p->scale, excess = relaxed.bound - relaxed.value;
    double first = FIRST_BUDGET * relaxed.price, widest = FIRST_MAX(0.0, excess);
    double budget = FIRST_MIN(first, widest) + 2.0 * margin;
    for (;;) {
        double missing = INFINITY;
        /* Windows left without a feasible allocation by rounding are widened like those that miss the best. */
        if (set_windows(p, budget) <= p->problem->nodes) {
            double value;
            Outcome outcome = best_in(p, bonus / 2.0, counts, &value);
            if (outcome != DONE)
                return outcome;
            missing = relaxed.bound - value + margin;
            *bound = value;
            if (missing <= budget)
                return DONE;
        }
        Outcome outcome = checkpoint(p->effort.deadline_s);
        if (outcome != DONE)
            return outcome;
        double wanted = missing * (1.0 + ROUNDING), most = GROWTH * budget;
        budget = FIRST_MIN(wanted, most);
    }
}

/* Best counts if each task that keeps its count earns a bonus (none for `scale` 0), and their value with it. */
static Outcome best_for(Programme *p, double scale, int64_t *counts, double *bound) {
    const Problem *problem = p->problem;
    Py_ssize_t kinds = problem->kinds, width = problem->width;
    double bonus = TIE_SHARE * scale / (double)problem->tasks;
    memcpy(p->favoured, problem->values, (size_t)(kinds * width) * sizeof(double));
    for (Py_ssize_t k = 0; k < kinds; k++)
        if (problem->held[k] < width)
            p->favoured[k * width + problem->held[k]] += bonus;
    for (Py_ssize_t k = 0; !p->effort.prune && k < kinds; k++) {
        p->low[k] = 0;
        p->high[k] = width - 1;
        while (p->high[k] > 0 && !isfinite(p->favoured[k * width + p->high[k]]))
            p->high[k]--;
    }
    Outcome outcome =
        p->effort.prune ? best_in_windows(p, bonus, counts, bound) : best_in(p, bonus / 2.0, counts, bound);
    if (outcome != DONE || p->by == BY_SEARCH)
        return outcome;
    /* Added up by tasks, not by windows: the same to the last bit whatever the windows were. */
    if (worth_of(p, p->favoured, counts, bound) < 0)
        return FAILED;
    if (p->lost > LOST_BY_ROUNDING * p->scale)
        *bound += bonus / 2.0;
    return DONE;
}

/* Try again where the optimum is much smaller than the scale was taken to be: the bonus may have outweighed values. */
static Outcome second_pass(Programme *p, Answer *answer) {
    double bound, optimum, ignored, value = answer->value;
    size_t bytes = (size_t)p->problem->tasks * sizeof(int64_t);
    int64_t *exact = grown(NULL, p->problem->tasks, sizeof(int64_t));
    if (exact == NULL)
        return FAILED;
    Outcome outcome = best_for(p, 0.0, exact, &bound);
    if (outcome == DONE && worth_of(p, p->problem->values, exact, &optimum) < 0)
        outcome = FAILED;
    if (outcome == DONE) {
        double worst = optimum - CERTIFIED_GAP * fabs(optimum);
        if (value < worst) {
            outcome = best_for(p, fabs(optimum), answer->counts, &ignored);
            if (outcome == DONE && worth_of(p, p->problem->values, answer->counts, &value) < 0)
                outcome = FAILED;
        }
        if (outcome == DONE && value < worst) {
            memcpy(answer->counts, exact, bytes);
            value = optimum;
        }
        answer->value = value;
        answer->bound = FIRST_MAX(bound, value);
    }
    free(exact);
    return outcome;
}

/* Run the passes of a decision whose arrays are there. */
static Outcome run_passes(Programme *p, Answer *answer) {
    double bound;
    Outcome outcome = best_for(p, p->scale, answer->counts, &bound);
    if (outcome != DONE)
        return outcome;
    if (worth_of(p, p->problem->values, answer->counts, &answer->value) < 0)
        return FAILED;
    answer->bound = FIRST_MAX(bound, answer->value);
    double gap = FIRST_MAX(CERTIFIED_GAP, p->gap);
    return bound - answer->value <= gap * fabs(answer->value) ? DONE : second_pass(p, answer);
}

/* Answer a problem of one task or more; `answer->counts` has room for all. */
Outcome decide(const Problem *problem, Effort effort, Answer *answer) {
    Py_ssize_t tasks = problem->tasks, kinds = problem->kinds, entries = kinds * problem->width;
    Programme p = {.problem = problem, .effort = effort, .by = BY_BACKEND};
    /* Gaps up to this one count as proven anyway. */
    p.gap = effort.gap > CERTIFIED_GAP ? effort.gap : 0.0;
    double most = problem->values[0], least = problem->values[0];
    for (Py_ssize_t k = 0; k < kinds; k++) {
        const double *row = problem->values + k * problem->width;
        most = FIRST_MAX(most, row[first_largest(row, problem->width)]);
        least = FIRST_MIN(least, row[0]);
    }
    p.scale = (double)tasks * FIRST_MAX(most, -least);
    if (p.scale == 0.0)
        p.scale = 1.0;
    Outcome outcome = FAILED;
    if (!isfinite(p.scale))
        PyErr_SetString(PyExc_OverflowError, "Expected values whose sums are finite.");
    else if ((p.favoured = grown(NULL, entries, sizeof(double))) != NULL &&
        (p.losses = grown(NULL, entries, sizeof(double))) != NULL &&
        (p.worth = grown(NULL, tasks, sizeof(double))) != NULL &&
        (p.low = grown(NULL, kinds, sizeof(int64_t))) != NULL &&
        (p.high = grown(NULL, kinds, sizeof(int64_t))) != NULL &&
        (p.known = grown(NULL, kinds, sizeof(int64_t))) != NULL &&
        (p.free_tasks = grown(NULL, tasks, sizeof(Py_ssize_t))) != NULL)
        outcome = run_passes(&p, answer);
    answer->by = p.by;
    free(p.favoured);
    free(p.losses);
    free(p.worth);
    free(p.rows);
    free(p.low);
    free(p.high);
    free(p.known);
    free(p.free_tasks);
    return outcome;
}
