/* SPDX-License-Identifier: MIT */
/* faults.c: what must not go wrong when something else does. Built with race.h. */
#include "check.h"

#include "race.h"

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

static int fault_at = -1, writes, stop, passes;
static uint64_t inside, hits;
static uint8_t *faulty, faulty_old;

static uint8_t *deciding_byte(const void *site) {
    return (uint8_t *)(uintptr_t)site + (MJ_KIND == MJ_KIND_jump);
}

/* Before the write number `fault_at`, somebody else changes the site that is to be written. */
void mj_test_race(const char *point, const void *argument) {
    if (strcmp(point, "write") || writes++ != fault_at)
        return;
    /* let threads into the probe, which is open at the sites before this one */
    for (const int before = __atomic_load_n(&passes, __ATOMIC_SEQ_CST);
         fault_at > 0 && !stop && __atomic_load_n(&passes, __ATOMIC_SEQ_CST) < before + 2;)
        sched_yield();
    faulty = deciding_byte(argument);
    faulty_old = alter_byte(faulty, 0xcc);
}

__attribute__((always_inline)) static inline void inlined(int value) {
    MARK(many, "value %d", value);
}

__attribute__((noinline)) static void many(int value, int rare) {
    inlined(value);
    inlined(value + 1);
    if (rare) {
        inlined(value + 2);
        inlined(value + 3);
    }
}

static void on_many(struct mj_slot *slot, int value) {
    (void)slot;
    (void)value;
    __atomic_fetch_add(&inside, 1, __ATOMIC_SEQ_CST);
    sched_yield();
    __atomic_fetch_add(&hits, 1, __ATOMIC_SEQ_CST);
    __atomic_fetch_sub(&inside, 1, __ATOMIC_SEQ_CST);
}

static void *run_many(void *unused) {
    while (!__atomic_load_n(&stop, __ATOMIC_RELAXED)) {
        many(1, stop > 1);
        __atomic_fetch_add(&passes, 1, __ATOMIC_SEQ_CST);
    }
    return unused;
}

/* Sites are written in the order of their addresses. The running thread does not come by the third
   and fourth one, which are altered. */
static void failed_write(void) {
    const uint64_t text = text_hash();
    const struct found found = find_sites("many");
    pthread_t runner;

    CHECK_EQUAL(found.count, 4);
    CHECK_EQUAL(pthread_create(&runner, NULL, run_many, NULL), 0);
    for (int round = 0; round < 50; round++) {
        writes = 0;
        fault_at = 2 + round % 2;
        CHECK_EQUAL(marker_set_probe("many", MARKER_PROBE(on_many), MARKER_CALL), -EILSEQ);
        CHECK_EQUAL(__atomic_load_n(&inside, __ATOMIC_SEQ_CST), 0);
        CHECK_EQUAL(*(volatile uint8_t *)faulty, 0xcc);
        alter_byte(faulty, faulty_old);
        CHECK_EQUAL(text_hash(), text);
        CHECK(found.sites[0].slot->probe == NULL);
        CHECK_EQUAL(marker_disable_probe("many"), -ENOENT);
    }
    CHECK(hits > 0); /* else no thread was inside when it failed */
    const uint64_t hits_before = hits;
    fault_at = -1;
    stop = 1;
    pthread_join(runner, NULL);
    CHECK_EQUAL(marker_set_probe("many", MARKER_PROBE(on_many), MARKER_CALL), 0);
    many(1, 1);
    CHECK_EQUAL(hits, hits_before + 4);
    CHECK_EQUAL(marker_disable_probe("many"), 0);
    CHECK_EQUAL(text_hash(), text);
}

/* ---- a kernel that refuses ------------------------------------------------------------------- */

/* `call` fails with `error`, except when its first argument is `allowed`. */
static void refuse(int call, int error, uint32_t allowed) {
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)call, 0, 2),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, allowed, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (unsigned)error),
    };
    struct sock_fprog program = {6, filter};

    /* not this call: allow */
    filter[1].jf = 2;
    CHECK_EQUAL(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
    CHECK_EQUAL(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program), 0);
}

static void *run_elsewhere(void *unused) {
    for (;;)
        pause();
    return unused;
}

/* From now on the page of this code is shared, and writable, so that a write would succeed. */
static void share(const void *code) {
    uint8_t *page = (uint8_t *)((uintptr_t)code & ~4095ul);
    const int file = memfd_create("text", 0);

    CHECK_EQUAL(write(file, page, 4096), 4096);
    CHECK(mmap(page, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_SHARED | MAP_FIXED, file, 0) ==
          page);
}

static void set_and_expect(enum marker_sync sync) {
    const uint64_t text = text_hash();
    struct marker_statistics numbers;

    CHECK_EQUAL(marker_set_probe("many", MARKER_PROBE(on_many), MARKER_CALL), 0);
    many(1, 1);
    CHECK_EQUAL(hits, 4);
    CHECK_EQUAL(marker_disable_probe("many"), 0);
    many(1, 1);
    CHECK_EQUAL(hits, 4);
    CHECK_EQUAL(text_hash(), text);
    marker_get_statistics(&numbers);
    CHECK_EQUAL(numbers.sync, sync);
}

static void no_membarrier(void) {
    refuse(SYS_membarrier, ENOSYS, 12345);
    set_and_expect(MARKER_SYNC_SIGNALS);
}

static void only_global_membarrier(void) {
    refuse(SYS_membarrier, EINVAL, 1);
    refuse(SYS_rt_tgsigqueueinfo, EPERM, 12345);
    pthread_t runner;
    CHECK_EQUAL(pthread_create(&runner, NULL, run_elsewhere, NULL), 0);
    set_and_expect(MARKER_SYNC_GLOBAL);
}

static void no_fence_at_all(void) {
    refuse(SYS_membarrier, ENOSYS, 12345);
    refuse(SYS_rt_tgsigqueueinfo, EPERM, 12345);
    pthread_t runner;
    CHECK_EQUAL(pthread_create(&runner, NULL, run_elsewhere, NULL), 0);
    set_and_expect(MARKER_SYNC_NOTHING);
}

/* Linux before 6.11: /proc/self/maps is read. */
static void maps_cannot_be_queried(void) {
    refuse(SYS_ioctl, ENOTTY, 12345);
    set_and_expect(MARKER_SYNC_CORE);
    share(find_sites("many").sites[0].address);
    CHECK_EQUAL(marker_set_probe("many", MARKER_PROBE(on_many), MARKER_CALL), -EACCES);
}

static void memory_file_is_read_only(void) {
    refuse(SYS_pwrite64, EIO, 12345);
    set_and_expect(MARKER_SYNC_CORE);
}

static void nothing_can_be_written(void) {
    const uint64_t text = text_hash();

    refuse(SYS_pwrite64, EIO, 12345);
    refuse(SYS_mprotect, EPERM, 12345);
    CHECK_EQUAL(marker_set_probe("many", MARKER_PROBE(on_many), MARKER_CALL), -EPERM);
    many(1, 1);
    CHECK_EQUAL(hits, 0);
    CHECK_EQUAL(text_hash(), text);
    CHECK(find_sites("many").sites[0].slot->probe == NULL);
}

MAIN(CASE(failed_write), CASE(no_membarrier), CASE(only_global_membarrier), CASE(no_fence_at_all),
     CASE(maps_cannot_be_queried), CASE(memory_file_is_read_only), CASE(nothing_can_be_written))
