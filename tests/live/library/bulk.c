/* SPDX-License-Identifier: MIT */
/* bulk.c: so many sites that they are written through mprotect; or, built with a large MJ_MANY,
   each by itself. Built with race.h. */
#include "check.h"

#include "race.h"

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

enum { SITES = 256 };

#define EIGHT(f, n)                                                                                \
    f(n) f((n) + 1) f((n) + 2) f((n) + 3) f((n) + 4) f((n) + 5) f((n) + 6) f((n) + 7)
#define ONE(n) MARK(bulk, "n %d", (n) + base);
#define SIXTY_FOUR(n)                                                                              \
    EIGHT(ONE, n)                                                                                  \
    EIGHT(ONE, (n) + 8)                                                                            \
    EIGHT(ONE, (n) + 16)                                                                           \
    EIGHT(ONE, (n) + 24)                                                                           \
    EIGHT(ONE, (n) + 32)                                                                           \
    EIGHT(ONE, (n) + 40) EIGHT(ONE, (n) + 48) EIGHT(ONE, (n) + 56)

/* aligned, so that the sites lie on more than one page */
__attribute__((noinline, aligned(4096))) static void first_half(int base) {
    SIXTY_FOUR(0)
    SIXTY_FOUR(64)
}

__attribute__((noinline, aligned(4096))) static void second_half(int base) {
    SIXTY_FOUR(128)
    SIXTY_FOUR(192)
}

static void pass(void) {
    first_half(0);
    second_half(0);
}

static int hits, sum;

static void on_bulk(struct mj_slot *slot, int n) {
    (void)slot;
    hits++;
    sum += n;
}

static int set(void) { return marker_set_probe("bulk", MARKER_PROBE(on_bulk), MARKER_CALL); }

/* ---- somebody else in the middle ------------------------------------------------------------- */

static int writes, fault_at = -1;
static bool spoil_one_before;
static struct { uint8_t *at, old; } spoilt[2];

static uint8_t *deciding_byte(const void *site) {
    return (uint8_t *)(uintptr_t)site + (MJ_KIND == MJ_KIND_jump);
}

static const void *last_written;

void mj_test_race(const char *point, const void *argument) {
    if (strcmp(point, "write"))
        return;
    if (writes++ == fault_at) {
        spoilt[0].at = deciding_byte(argument);
        spoilt[0].old = alter_byte(spoilt[0].at, 0xcc);
        if (spoil_one_before) {
            spoilt[1].at = deciding_byte(last_written);
            spoilt[1].old = alter_byte(spoilt[1].at, 0xcc);
        }
    }
    last_written = argument;
}

/* Lines of /proc/self/maps that say so. */
static int count_mappings(const char *protection) {
    FILE *maps = fopen("/proc/self/maps", "r");
    char line[512];
    int count = 0;

    while (fgets(line, sizeof(line), maps))
        count += strstr(line, protection) != NULL;
    fclose(maps);
    return count;
}

static void all_are_switched(void) {
    const uint64_t text = text_hash();

    for (int round = 1; round <= 3; round++) {
        CHECK_EQUAL(set(), 0);
        CHECK_EQUAL(count_mappings(" rwxp "), 0);
        pass();
        CHECK_EQUAL(hits, SITES * round);
        CHECK_EQUAL(sum, SITES * (SITES - 1) / 2 * round);
        CHECK_EQUAL(marker_disable_probe("bulk"), 0);
        CHECK_EQUAL(count_mappings(" rwxp "), 0);
        CHECK_EQUAL(text_hash(), text);
        pass();
        CHECK_EQUAL(hits, SITES * round);
    }
}

/* At many places in turn, the first and the last among them. What was written is taken back, the
 * site that somebody has is left. */
static void failure_anywhere_is_taken_back(void) {
    const uint64_t text = text_hash();

    for (fault_at = 0; fault_at < SITES; fault_at += 5) {
        writes = 0;
        CHECK_EQUAL(set(), -EILSEQ);
        CHECK_EQUAL(writes, 2 * fault_at + 1); /* forward, and back again */
        CHECK_EQUAL(*spoilt[0].at, 0xcc);
        alter_byte(spoilt[0].at, spoilt[0].old);
        CHECK_EQUAL(text_hash(), text);
        CHECK_EQUAL(count_mappings(" rwxp "), 0);
        pass();
        CHECK_EQUAL(hits, 0);
    }
    fault_at = -1;
    CHECK_EQUAL(set(), 0);
}

/* Not even that: all others are taken back, and the error is another. */
static void failure_to_take_back_is_said(void) {
    const uint64_t text = text_hash();

    fault_at = 100;
    spoil_one_before = true;
    CHECK_EQUAL(set(), -ENOTRECOVERABLE);
    CHECK_EQUAL(marker_disable_probe("bulk"), -ENOENT);
    alter_byte(spoilt[0].at, spoilt[0].old);
    alter_byte(spoilt[1].at, spoilt[1].old); /* it was open, and has no probe to call */
    pass();
    CHECK_EQUAL(hits, 0);
    CHECK_EQUAL(set(), -EILSEQ);
    alter_byte(spoilt[1].at, spoilt[0].old);
    CHECK_EQUAL(text_hash(), text);
    fault_at = -1;
    CHECK_EQUAL(set(), 0);
}

/* ---- a kernel that refuses ------------------------------------------------------------------- */

/* `call` fails with `error` where its third argument is `third`. */
static void refuse_third(int call, int error, uint32_t third) {
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)call, 0, 3),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[2])),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, third, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (unsigned)error),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {6, filter};

    CHECK_EQUAL(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
    CHECK_EQUAL(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program), 0);
}

/* As SELinux does without execmem. */
static void code_may_not_become_writable(void) {
    refuse_third(SYS_mprotect, EACCES, PROT_READ | PROT_WRITE | PROT_EXEC);
    all_are_switched();
}

/* Opened, and cannot be closed: the bytes are as before, and the error says that not all is. */
static void code_stays_writable(void) {
    const uint64_t text = text_hash();

    refuse_third(SYS_mprotect, ENOMEM, PROT_READ | PROT_EXEC);
    CHECK_EQUAL(set(), -ENOTRECOVERABLE);
    CHECK_EQUAL(text_hash(), text);
    CHECK_EQUAL(count_mappings(" rwxp "), 1);
    pass();
    CHECK_EQUAL(hits, 0);
}

/* ---- mappings that are not the loader's ------------------------------------------------------ */

/* One page in the middle has another protection, and keeps it. */
static void protections_are_kept(void) {
    void *page = (void *)((uintptr_t)second_half & ~4095ul);

    CHECK_EQUAL(mprotect(page, 4096, PROT_READ | PROT_WRITE | PROT_EXEC), 0);
    CHECK_EQUAL(set(), 0);
    CHECK_EQUAL(count_mappings(" rwxp "), 1);
    pass();
    CHECK_EQUAL(hits, SITES);
    CHECK_EQUAL(marker_disable_probe("bulk"), 0);
    CHECK_EQUAL(count_mappings(" rwxp "), 1);
}

/* The page becomes shared between two switches: what is known of the sites says nothing of that. */
static void page_becomes_shared(void) {
    uint8_t *page = (uint8_t *)((uintptr_t)second_half & ~4095ul);
    const int file = memfd_create("text", 0);
    uint8_t before[4096], after[4096];

    CHECK_EQUAL(set(), 0);
    CHECK_EQUAL(marker_disable_probe("bulk"), 0);
    for (int on = 0; on < 2; on++) {
        if (on) {
            CHECK(mmap(page, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_FIXED,
                       file, 0) == page);
            CHECK_EQUAL(set(), 0);
        }
        CHECK_EQUAL(pwrite(file, page, 4096, 0), 4096);
        CHECK(mmap(page, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_SHARED | MAP_FIXED, file,
                   0) == page);
        CHECK_EQUAL(pread(file, before, sizeof(before), 0), 4096);
        CHECK_EQUAL(on ? marker_disable_probe("bulk") : set(), -EACCES);
        CHECK_EQUAL(pread(file, after, sizeof(after), 0), 4096);
        CHECK(!memcmp(before, after, sizeof(before)));
        pass(); /* sites that stay open have no probe */
        CHECK_EQUAL(hits, 0);
    }
}

MAIN(CASE(all_are_switched), CASE(failure_anywhere_is_taken_back),
     CASE(failure_to_take_back_is_said), CASE(code_may_not_become_writable),
     CASE(code_stays_writable), CASE(protections_are_kept), CASE(page_becomes_shared))
