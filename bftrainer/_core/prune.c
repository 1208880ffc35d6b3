/* Exact pruning: drop options that belong to no allocation better than a known one. See `solvers.option_pruning`. */

#include "core.h"

#include <stdlib.h>
#include <string.h>

#define KEPT_SHARE 1e-9

/* An option whose loss does not rule it out: its task, count, and what choosing it would change. */
typedef struct {
    Py_ssize_t task;
    int64_t count, more;
    double loss, gain;
} Option;

/* A known allocation that is improved step by step. */
typedef struct {
    const Problem *problem;
    const Relaxed *relaxed;
    int64_t *chosen, left;
    double *now, tolerance, gap;
    Option *options;
    Py_ssize_t found, room;
} Search;

/* Sum up the present allocation: its values, nodes left, and shortfall. */
static void take_stock(Search *s) {
    s->left = s->problem->nodes;
    for (Py_ssize_t j = 0; j < s->problem->tasks; j++) {
        s->now[j] = s->problem->values[s->problem->kind[j] * s->problem->width + s->chosen[j]];
        s->left -= s->chosen[j];
    }
    s->gap = s->relaxed->bound - pairwise_sum(s->now, s->problem->tasks);
}

/* List options whose loss is at most the shortfall, in the order of tasks and counts. */
static int list_options(Search *s) {
    Py_ssize_t width = s->problem->width;
    s->found = 0;
    for (Py_ssize_t j = 0; j < s->problem->tasks; j++)
        for (Py_ssize_t c = 0, kind = s->problem->kind[j]; c < width; c++) {
            double loss = s->relaxed->losses[kind * width + c];
            if (!(loss <= s->gap))
                continue;
            if (s->found == s->room) {
                Option *more = grown(s->options, 2 * s->room, sizeof(Option));
                if (more == NULL)
                    return -1;
                s->options = more;
                s->room *= 2;
            }
            double gain = s->problem->values[kind * width + c] - s->now[j];
            s->options[s->found++] = (Option){j, c, c - s->chosen[j], loss, gain};
        }
    return 0;
}

/* Loss that an option adds to that of its task's present choice. */
static double added_loss(const Search *s, const Option *option) {
    Py_ssize_t kind = s->problem->kind[option->task];
    return option->loss - s->relaxed->losses[kind * s->problem->width + s->chosen[option->task]];
}

/* Find the option that fits, gains and adds the least loss (the largest of equals), or NULL. */
static const Option *best_single(const Search *s) {
    double least = INFINITY;
    for (Py_ssize_t i = 0; i < s->found; i++) {
        const Option *option = s->options + i;
        if (option->gain > s->tolerance && option->more <= s->left)
            least = FIRST_MIN(least, added_loss(s, option));
    }
    const Option *best = NULL;
    for (Py_ssize_t i = 0; i < s->found; i++) {
        const Option *option = s->options + i;
        if (option->gain > s->tolerance && option->more <= s->left && added_loss(s, option) <= least + s->tolerance)
            if (best == NULL || option->more > best->more)
                best = option;
    }
    return best;
}

/* Improve the relaxation's choices by changing one task at a time, while that gains and time is left. */
static Outcome improve(Search *s, double deadline_s) {
    for (Py_ssize_t round = 0; round < s->problem->tasks; round++) {
        take_stock(s);
        Outcome outcome = s->gap <= s->tolerance ? OUT_OF_TIME : checkpoint(deadline_s);
        if (outcome != DONE)
            return outcome == OUT_OF_TIME ? DONE : outcome;
        if (list_options(s) < 0)
            return FAILED;
        const Option *best = best_single(s);
        if (best == NULL)
            return DONE;
        s->chosen[best->task] = best->count;
    }
    return DONE;
}

/* The least and the most count of a task that are left. */
static void find_ends(const uint8_t *own, Py_ssize_t width, Py_ssize_t *least, Py_ssize_t *most) {
    *least = 0;
    *most = width - 1;
    while (!own[*least])
        ++*least;
    while (!own[*most])
        --*most;
}

/* Drop a task's counts of more than `last`, and those worth less than fewer nodes; keep only the best if `all_fit`. */
static int drop_counts(uint8_t *own, const double *values, Py_ssize_t width, int64_t last, int all_fit) {
    double best = -INFINITY;
    int dropped = 0;
    for (Py_ssize_t c = 0; c < width; c++)
        if (own[c] && (c > last || values[c] < best)) {
            own[c] = 0;
            dropped = 1;
        } else if (own[c])
            best = values[c];
    for (Py_ssize_t c = 0; all_fit && c < width; c++)
        if (own[c] && values[c] < best) {
            own[c] = 0;
            dropped = 1;
        }
    return dropped;
}

/* Drop what does not fit beside the least of all others, is worth less than fewer nodes, or is not best if all fit. */
static void narrow(const Problem *problem, uint8_t *kept) {
    for (int dropped = 1; dropped;) {
        Py_ssize_t width = problem->width, least, most;
        int64_t least_sum = 0, most_sum = 0;
        dropped = 0;
        for (Py_ssize_t j = 0; j < problem->tasks; j++) {
            find_ends(kept + j * width, width, &least, &most);
            least_sum += least;
            most_sum += most;
        }
        for (Py_ssize_t j = 0; j < problem->tasks; j++) {
            uint8_t *own = kept + j * width;
            find_ends(own, width, &least, &most);
            int64_t last = problem->nodes - least_sum + least;
            const double *values = problem->values + problem->kind[j] * width;
            dropped |= drop_counts(own, values, width, last, most_sum <= problem->nodes);
        }
    }
}

/* Mark what may beat the allocation found. */
static Outcome mark_kept(Search *s, double deadline_s, Pruned *pruned) {
    double bound = s->relaxed->bound;
    if (improve(s, deadline_s) != DONE)
        return FAILED;
    take_stock(s);
    double size = FIRST_MAX(fabs(bound - s->gap), fabs(bound)), most = s->gap + KEPT_SHARE * size;
    for (Py_ssize_t j = 0, width = s->problem->width; j < s->problem->tasks; j++) {
        const double *losses = s->relaxed->losses + s->problem->kind[j] * width;
        for (Py_ssize_t c = 0; c < width; c++)
            pruned->kept[j * width + c] = losses[c] <= most;
        /* What is known stays even where rounding says otherwise, so that the least of all tasks fits. */
        pruned->kept[j * width + s->chosen[j]] = 1;
    }
    narrow(s->problem, pruned->kept);
    pruned->bound = bound;
    pruned->by = s->relaxed->price != 0.0 ? BY_PRUNING : BY_TRIVIAL;
    return DONE;
}

/* Prune the options of a problem of one task or more. */
Outcome prune(const Problem *problem, double deadline_s, Pruned *pruned) {
    Relaxed relaxed = {0};
    Search s = {.problem = problem, .relaxed = &relaxed, .chosen = pruned->counts, .room = 256};
    Outcome outcome = FAILED;
    if ((relaxed.losses = grown(NULL, problem->kinds * problem->width, sizeof(double))) != NULL &&
        (relaxed.choices = grown(NULL, problem->kinds, sizeof(int64_t))) != NULL &&
        (s.now = grown(NULL, problem->tasks, sizeof(double))) != NULL &&
        (s.options = grown(NULL, s.room, sizeof(Option))) != NULL && relax(problem, problem->values, &relaxed) == 0) {
        s.tolerance = KEPT_SHARE * fabs(relaxed.bound);
        spread(problem, relaxed.choices, pruned->counts);
        outcome = mark_kept(&s, deadline_s, pruned);
    }
    free(relaxed.losses);
    free(relaxed.choices);
    free(s.now);
    free(s.options);
    return outcome;
}
