/* SPDX-License-Identifier: MIT */
/*
 * cost.c: small functions, with their markers and, under WITHOUT_MARKERS, without: what does a
 * marker that is off cost the function that it stands in?
 */
#ifdef WITHOUT_MARKERS
#define MARK(...) ((void)0)
#else
#include <markerjit/marker.h>
#endif
#include <stddef.h>

struct node {
    struct node *next;
    int key;
};

int leaf(int a, int b);
int leaf_of_two(int a, int b);
long sum(const int *numbers, size_t count);
struct node *search(struct node *node, int key);
double reals(double a, float b);

int leaf(int a, int b) {
    const int product = a * b;

    MARK(leaf, "product %d a %d", product, a);
    return product + b;
}

int leaf_of_two(int a, int b) {
    MARK(first, "a %d", a);
    const int sum_of_both = a + b;

    MARK(second, "sum %d", sum_of_both);
    return sum_of_both;
}

long sum(const int *numbers, size_t count) {
    long total = 0;

    for (size_t at = 0; at < count; at++) {
        total += numbers[at];
        MARK(sum, "at %zu total %ld", at, total);
    }
    return total;
}

struct node *search(struct node *node, int key) {
    for (; node; node = node->next) {
        MARK(search, "key %d node %p", node->key, (void *)node);
        if (node->key == key)
            return node;
    }
    return NULL;
}

double reals(double a, float b) {
    MARK(reals, "a %f b %f", a, b);
    return a * b;
}
