/* SPDX-License-Identifier: MIT */
/*
 * text.c: the kind and the state of a site. Reads only.
 */
#include "spot.h"

bool mj_is_text(const struct mj_site *site) {
    return site->kind == MJ_KIND_jump || site->kind == MJ_KIND_nop ||
           site->kind == MJ_KIND_immediate;
}

/*
 * A sentinel could be switched by storing its slot. Its sites do not count the threads inside,
 * though, so a caller could never learn that the probe may be freed. Direct has no slot; symbol
 * needs a breakpoint, and a handler for it.
 */
bool mj_can_switch(const struct mj_site *site) {
    return mj_is_text(site) || site->kind == MJ_KIND_pointer;
}

/* ---- spots ----------------------------------------------------------------------------------- */

struct mj_spot mj_spot_of(const struct mj_site *site) {
    const ptrdiff_t size = site->kind == MJ_KIND_jump ? 7 : site->kind == MJ_KIND_nop ? 5 : 1;
    const ptrdiff_t relative = site->kind == MJ_KIND_immediate ? 0 : site->body - site->code - size;
    const bool fits = site->end == site->code + size && relative == (int32_t)relative;

    return (struct mj_spot){.code = site->code,
                            .relative = (int32_t)relative,
                            .kind = fits ? site->kind & 15u : 0,
                            .is_writable = site->is_writable};
}

/* ---- sites ----------------------------------------------------------------------------------- */

static bool slot_holds(const struct mj_site *site, uintptr_t probe) {
    return (uintptr_t)__atomic_load_n(&site->slot->probe, __ATOMIC_RELAXED) == probe;
}

enum mj_state mj_site_state(const struct mj_site *site) {
    const struct mj_spot spot = mj_spot_of(site);

    switch (site->kind) {
    case MJ_KIND_pointer:
        return slot_holds(site, 0) ? MJ_DORMANT : MJ_OPEN;
    case MJ_KIND_sentinel:
        return slot_holds(site, (uintptr_t)site->body) ? MJ_DORMANT : MJ_OPEN;
    case MJ_KIND_direct:
        return MJ_OPEN;
    case MJ_KIND_symbol: /* 90 nop -> cc int3 */
        return __atomic_load_n(site->code, __ATOMIC_RELAXED) == 0xcc ? MJ_OPEN : MJ_DORMANT;
    default:
        return mj_spot_is(&spot, MJ_DORMANT) ? MJ_DORMANT
               : mj_spot_is(&spot, MJ_OPEN)  ? MJ_OPEN
                                             : MJ_STRANGE;
    }
}
