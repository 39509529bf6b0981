/* SPDX-License-Identifier: MIT */
/*
 * again.c: is a process as it was when a switch was made the last time?
 *
 * All is asked by one call from Python. Between two switches a program does something else, and
 * what each question takes in Python has left the caches by then: three times as long as here.
 * What is asked, and why it is enough, is in markerjit/session/again.py.
 */

#include "mapped.h"

#include <poll.h>
#include <string.h>
#include <unistd.h>

enum { PART_BYTES = 1024 };

static int has_ended(int32_t pidfd) {
    struct pollfd ended = {.fd = pidfd, .events = POLLIN};

    return pidfd >= 0 && poll(&ended, 1, 0) != 0;
}

static int has_loads(const struct mj_loads *expected) {
    struct mj_loads loads;

    if (!expected)
        return 1;
    mj_own_loads(&loads);
    return loads.loaded == expected->loaded && loads.unloaded == expected->unloaded;
}

static int has_bytes(const struct mj_place *place) {
    uint8_t found[PART_BYTES];
    uint64_t at = 0, size;

    for (; at < place->size; at += size) {
        size = place->size - at < sizeof found ? place->size - at : sizeof found;
        if (pread(place->file, found, size, (off_t)(place->offset + at)) != (ssize_t)size ||
            memcmp(found, place->bytes + at, size) != 0)
            return 0;
    }
    return 1;
}

int mj_is_as_before(const struct mj_before *before) {
    if (has_ended(before->pidfd) || !has_loads(before->loads))
        return 0;
    if (!mapped_as(before->maps, (const struct mj_mapping *)before->mapped, before->mapped_count,
                   before->kind))
        return 0;
    for (uint32_t i = 0; i < before->place_count; i++)
        if (!has_bytes(&before->places[i]))
            return 0;
    return 1;
}
