/* SPDX-License-Identifier: MIT */
/*
 * lab_registers: one function three times, for the lab, which counts their instructions.
 *
 *     leaf_bare        without a marker
 *     leaf_ordinary    with a site as a marker's whose body is an ordinary call
 *     leaf_preserving  with a marker
 *
 * A shared object, so that the functions are called by nothing that the compiler sees.
 */
#include <markerjit/marker.h>

int leaf_bare(int a, int b);
int leaf_ordinary(int a, int b);
int leaf_preserving(int a, int b);
extern void (*lab_probe)(int product, int a);

void (*lab_probe)(int product, int a);

int leaf_bare(int a, int b) {
    const int product = a * b;

    return product + b;
}

/* The head and tail of a site of kind `jump`: over the five bytes of a jump to the body. */
int leaf_ordinary(int a, int b) {
    const int product = a * b;

    __asm__ goto(".byte 0xeb, 5, 0xe9\n\t.long %l[body] - . - 4" : : : : body);
    return product + b;
body:
    lab_probe(product, a);
    return product + b;
}

int leaf_preserving(int a, int b) {
    const int product = a * b;

    MARK(lab_leaf, "product %d a %d", product, a);
    return product + b;
}
