/* SPDX-License-Identifier: MIT */
/* objects.c: one marker name in several objects. Run with the paths of two builds of part.c. */
#include "check.h"

#include <dlfcn.h>

static const char *paths[2];
static int calls, sum;

static void on_any(struct mj_slot *slot, int value) {
    (void)slot;
    calls++;
    sum += value;
}

__attribute__((noinline)) static void main_pass(int value) { MARK(shared_name, "value %d", value); }

struct part {
    void *handle;
    int (*pass)(int value);
};

static struct part load(int which) {
    struct part part = {dlopen(paths[which], RTLD_NOW | RTLD_LOCAL), NULL};

    CHECK(part.handle);
    *(void **)&part.pass = dlsym(part.handle, "part_pass");
    CHECK(part.pass);
    return part;
}

static int set(void) { return marker_set_probe("shared_name", MARKER_PROBE(on_any), MARKER_CALL); }

static void all_are_set(void) {
    const struct part one = load(0), two = load(1);
    const uint64_t text = text_hash();
    const struct found found = find_sites("shared_name");

    CHECK_EQUAL(found.count, 5);
    CHECK_EQUAL(set(), 0);
    CHECK_EQUAL(find_sites("shared_name").on, 5);
    main_pass(1);
    one.pass(110);
    two.pass(1000);
    CHECK_EQUAL(calls, 5);
    CHECK_EQUAL(sum, 1 + 110 + 10 + 1000 + 900);
    CHECK_EQUAL(marker_disable_probe("shared_name"), 0);
    main_pass(1);
    one.pass(110);
    two.pass(1000);
    CHECK_EQUAL(calls, 5);
    CHECK_EQUAL(text_hash(), text);
}

static void all_or_none(void) {
    load(0);
    load(1);
    struct found found = find_sites("shared_name");

    for (int i = 0; i < found.count; i++) {
        const uint8_t *site = found.sites[i].address;
        const uint8_t old = alter_byte(site, 0xcc);
        const uint64_t text = text_hash();

        CHECK_EQUAL(set(), -EILSEQ);
        CHECK_EQUAL(text_hash(), text);
        for (int j = 0; j < found.count; j++)
            CHECK(found.sites[j].slot->probe == NULL);
        alter_byte(site, old);
    }
    CHECK_EQUAL(set(), 0);
}

static void unloaded_while_set(void) {
    const struct part one = load(0), two = load(1);

    CHECK_EQUAL(set(), 0);
    one.pass(1);
    two.pass(1);
    CHECK_EQUAL(dlclose(one.handle), 0);
    CHECK_EQUAL(find_sites("shared_name").count, 3);
    two.pass(1);
    CHECK_EQUAL(marker_disable_probe("shared_name"), 0);
    two.pass(1);
    main_pass(1);
    CHECK_EQUAL(calls, 3);
    CHECK_EQUAL(marker_disable_probe("shared_name"), -ENOENT);
}

static void loaded_later(void) {
    CHECK_EQUAL(set(), 0);
    const struct part one = load(0);

    one.pass(1);
    CHECK_EQUAL(calls, 0);
    CHECK_EQUAL(set(), -EBUSY);
    CHECK_EQUAL(marker_disable_probe("shared_name"), 0);
    CHECK_EQUAL(set(), 0);
    one.pass(1);
    main_pass(1);
    CHECK_EQUAL(calls, 2);

    /* unloaded and loaded again, it is as new */
    dlclose(one.handle);
    const struct part again = load(0);
    again.pass(1);
    CHECK_EQUAL(calls, 2);
    CHECK_EQUAL(marker_disable_probe("shared_name"), 0);
}

/* ---- a disable that waits holds nothing that a probe needs ------------------------------------
 */

static int entered, disabling;

static void on_loading(struct mj_slot *slot) {
    (void)slot;
    __atomic_store_n(&entered, 1, __ATOMIC_SEQ_CST);
    while (!__atomic_load_n(&disabling, __ATOMIC_SEQ_CST))
        sched_yield();
    for (int i = 0; i < 20; i++) {
        const struct part one = load(0);

        CHECK_EQUAL(set(), 0);
        one.pass(1);
        CHECK_EQUAL(marker_disable_probe("shared_name"), 0);
        CHECK_EQUAL(dlclose(one.handle), 0);
    }
}

__attribute__((noinline)) static void loading_pass(void) { MARK(loading, "loading"); }

static void *run_loading(void *unused) {
    loading_pass();
    return unused;
}

static void *watch(void *data) {
    const struct mj_slot *slot = data;

    while (__atomic_load_n(&slot->probe, __ATOMIC_SEQ_CST))
        sched_yield();
    __atomic_store_n(&disabling, 1, __ATOMIC_SEQ_CST);
    return NULL;
}

static void probe_loads_objects(void) {
    const struct found found = find_sites("loading");
    pthread_t runner, watcher;

    CHECK_EQUAL(marker_set_probe("loading", MARKER_PROBE(on_loading), MARKER_CALL), 0);
    pthread_create(&runner, NULL, run_loading, NULL);
    while (!__atomic_load_n(&entered, __ATOMIC_SEQ_CST))
        sched_yield();
    pthread_create(&watcher, NULL, watch, (void *)(uintptr_t)found.sites[0].slot);
    CHECK_EQUAL(marker_disable_probe("loading"), 0);
    CHECK_EQUAL(calls, 20);
    pthread_join(runner, NULL);
    pthread_join(watcher, NULL);
}

/* ---- what is known of sites does not outlive their object -------------------------------------
 */

static int stop;

static void *load_and_unload(void *loads) {
    while (!__atomic_load_n(&stop, __ATOMIC_RELAXED)) {
        const struct part one = load(0), two = load(1);

        one.pass(1);
        two.pass(1);
        CHECK_EQUAL(dlclose(one.handle), 0); /* so the second is alone for a while */
        two.pass(1);
        CHECK_EQUAL(dlclose(two.handle), 0);
        __atomic_fetch_add((int *)loads, 1, __ATOMIC_RELAXED);
    }
    return NULL;
}

static void *pass_main(void *unused) {
    while (!__atomic_load_n(&stop, __ATOMIC_RELAXED))
        main_pass(1);
    return unused;
}

static void on_concurrent(struct mj_slot *slot, int value) {
    (void)slot;
    __atomic_fetch_add(&calls, value, __ATOMIC_RELAXED);
}

static void objects_come_and_go(void) {
    const struct found before = find_sites("shared_name");
    pthread_t loader, runner;
    int loads = 0;

    CHECK_EQUAL(pthread_create(&loader, NULL, load_and_unload, &loads), 0);
    CHECK_EQUAL(pthread_create(&runner, NULL, pass_main, NULL), 0);
    for (int i = 0; i < 1000 || __atomic_load_n(&loads, __ATOMIC_RELAXED) < 200; i++) {
        CHECK_EQUAL(marker_set_probe("shared_name", MARKER_PROBE(on_concurrent), MARKER_CALL), 0);
        CHECK_EQUAL(marker_disable_probe("shared_name"), 0);
    }
    stop = 1;
    pthread_join(loader, NULL);
    pthread_join(runner, NULL);
    calls = 0;
    main_pass(1);
    CHECK_EQUAL(calls, 0);
    CHECK_EQUAL(find_sites("shared_name").count, before.count);
    const struct part one = load(0);
    CHECK_EQUAL(set(), 0);
    main_pass(1);
    one.pass(1);
    CHECK_EQUAL(calls, 2);
}

static void truncated_note(void) {
    struct marker_statistics numbers;

    load(0);
    CHECK_EQUAL(set(), 0);
    marker_get_statistics(&numbers);
    CHECK_EQUAL(numbers.skipped_notes, 1);
}

int main(int argc, char **argv) {
    const struct test_case cases[] = {CASE(all_are_set),         CASE(all_or_none),
                                      CASE(unloaded_while_set),  CASE(loaded_later),
                                      CASE(probe_loads_objects), CASE(objects_come_and_go),
                                      CASE(truncated_note)};

    CHECK(argc == 4);
    paths[0] = argv[2];
    paths[1] = argv[3];
    return run_case(cases, sizeof(cases) / sizeof(*cases), argc, argv);
}
