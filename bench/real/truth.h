/* SPDX-License-Identifier: MIT */
/* truth.h: how often a place was passed, as the program itself counts it. */
#ifndef REAL_TRUTH_H
#define REAL_TRUTH_H

struct real_place {
    const char *name;
    unsigned long passed;
};

#endif
