/* The plain dynamic programme of textbook.py: for each task and each pool, the best of all counts.
   Options of task j stand at first[j] to first[j + 1]; best, other: room for nodes + 1 values; choice: for as many a task. */
#include <math.h>
#include <stdint.h>

double optimum(int64_t tasks, int64_t nodes, const int64_t *first, const int64_t *counts, const double *values,
               double *best, double *other, int64_t *choice, int64_t *answer)
{
    for (int64_t s = 0; s <= nodes; s++)
        best[s] = 0.0;
    for (int64_t j = 0; j < tasks; j++) {
        int64_t *chosen = choice + j * (nodes + 1);
        for (int64_t s = 0; s <= nodes; s++)
            other[s] = -INFINITY;
        for (int64_t k = first[j]; k < first[j + 1]; k++) {
            for (int64_t s = counts[k]; s <= nodes; s++) {
                double value = best[s - counts[k]] + values[k];
                if (value > other[s]) {
                    other[s] = value;
                    chosen[s] = counts[k];
                }
            }
        }
        double *swap = best;
        best = other;
        other = swap;
    }
    double found = best[nodes];
    for (int64_t j = tasks - 1, left = nodes; j >= 0; j--) {
        answer[j] = choice[j * (nodes + 1) + left];
        left -= answer[j];
    }
    return found;
}
