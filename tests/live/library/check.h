/* SPDX-License-Identifier: MIT */
/* check.h: what the programs of this directory share. A program runs the case that is named by its
   first argument, and says on standard error where it did not hold. C and C++. */
#ifndef CHECK_H
#define CHECK_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <pthread.h>
#include <sched.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <markerjit/marker.h>
#include <markerjit/probes.h>

#define CHECK_EQUAL(actual, expected)                                                              \
    do {                                                                                           \
        const long long actual_ = (long long)(actual), expected_ = (long long)(expected);          \
        if (actual_ != expected_) {                                                                \
            fprintf(stderr, "%s:%d: %s is %lld, expected %s, %lld\n", __FILE__, __LINE__, #actual, \
                    actual_, #expected, expected_);                                                \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)
#define CHECK(condition) CHECK_EQUAL(!!(condition), 1)

struct test_case {
    const char *name;
    void (*run)(void);
};
#define CASE(function)                                                                             \
    { #function, function }

static inline int run_case(const struct test_case *cases, size_t count, int argc, char **argv) {
    for (size_t i = 0; argc > 1 && i < count; i++)
        if (!strcmp(cases[i].name, argv[1])) {
            cases[i].run();
            puts("held");
            return 0;
        }
    fprintf(stderr, "no such case\n");
    return 2;
}
#define MAIN(...)                                                                                  \
    int main(int argc, char **argv) {                                                              \
        const struct test_case cases[] = {__VA_ARGS__};                                            \
        return run_case(cases, sizeof(cases) / sizeof(*cases), argc, argv);                        \
    }

/* FNV-1a of all executable segments of all objects. */
static inline int hash_object(struct dl_phdr_info *object, size_t size, void *data) {
    uint64_t *hash = (uint64_t *)data;

    (void)size;
    for (int i = 0; i < object->dlpi_phnum; i++) {
        const ElfW(Phdr) *segment = &object->dlpi_phdr[i];
        const uint8_t *bytes = (const uint8_t *)(object->dlpi_addr + segment->p_vaddr);

        if (segment->p_type == PT_LOAD && (segment->p_flags & PF_X) && (segment->p_flags & PF_R))
            for (size_t at = 0; at < segment->p_memsz; at++)
                *hash = (*hash ^ bytes[at]) * 0x100000001b3ul;
    }
    return 0;
}

static inline uint64_t text_hash(void) {
    uint64_t hash = 0xcbf29ce484222325ul;

    dl_iterate_phdr(hash_object, &hash);
    return hash;
}

/* The sites of one name. */
struct found {
    const char *name;
    int count, on;
    struct marker_site sites[64];
};

static inline int find_site(const struct marker_site *site, void *data) {
    struct found *found = (struct found *)data;

    if (strcmp(site->name, found->name) == 0 && found->count < 64) {
        found->sites[found->count++] = *site;
        found->on += site->on;
    }
    return 0;
}

static inline struct found find_sites(const char *name) {
    struct found found;

    memset(&found, 0, sizeof(found));
    found.name = name;
    CHECK_EQUAL(marker_for_each(find_site, &found), 0);
    return found;
}

/* As another tool would. */
static inline uint8_t alter_byte(const void *address, uint8_t byte) {
    const uint8_t old = *(const volatile uint8_t *)address;
    const int memory = open("/proc/self/mem", O_RDWR);

    CHECK_EQUAL(pwrite(memory, &byte, 1, (off_t)(uintptr_t)address), 1);
    close(memory);
    return old;
}

/* Keeps calls from being merged and loops from being dropped. */
#define OPAQUE(variable) __asm__ volatile("" : "+r"(variable) : : "memory")

#endif
