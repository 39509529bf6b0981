/* SPDX-License-Identifier: MIT */
/*
 * truth_objects: loads and unloads plugins at full speed, and puts other things in their place.
 *
 *     truth_host    "n %lu": in this program, before each call of the plugin
 *     truth_plugin  "n %d": in the plugin
 *
 * Commands: `load PATH`, `unload`, `call N`; `spin PATH`: a thread loads the plugin, calls it ten
 * times and unloads it, again and again, until `rest`. `occupy` unloads the plugin and maps an
 * exact copy of it in its place, as private data that belongs to no object; `spoiled` says how many
 * bytes of the copy have changed since. `trap OFFSET` makes the copy executable and calls an int3
 * of the program's own in it, OFFSET bytes behind its start, which the program's own handler
 * counts. `counts`, `quit`. The answer to `load` has the address of the plugin.
 */
#define _GNU_SOURCE 1
#include <dlfcn.h>
#include <link.h>
#include <markerjit/marker.h>
#include <signal.h>
#include <sys/mman.h>

#include "truth.h"

typedef void plugin_fn(int n, truth_count *count);

static truth_count host_count, plugin_count, evaluated, loads, own_traps;
static struct truth_gate gate = TRUTH_GATE;
static char path[4096];
static void *handle;
static plugin_fn *plugin;
static struct span {
    unsigned char *start;
    size_t size;
} span, occupied;
static unsigned char *copy;

static unsigned long evaluate(void) { return atomic_fetch_add(&evaluated, 1) + 1; }

static void on_trap(int number) {
    (void)number;
    truth_add(&own_traps);
}

static int measure(struct dl_phdr_info *info, size_t size, void *wanted) {
    const uintptr_t address = (uintptr_t)wanted;
    uintptr_t end = 0;

    (void)size;
    for (int i = 0; i < info->dlpi_phnum; i++)
        if (info->dlpi_phdr[i].p_type == PT_LOAD) {
            const ElfW(Phdr) *segment = &info->dlpi_phdr[i];
            uintptr_t segment_end = info->dlpi_addr + segment->p_vaddr + segment->p_memsz;

            end = segment_end > end ? segment_end : end;
        }
    if (address < info->dlpi_addr || address >= end)
        return 0;
    span.start = (unsigned char *)info->dlpi_addr;
    span.size = (end - info->dlpi_addr + 4095) & ~4095ul;
    return 1;
}

static bool load(void) {
    handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    plugin = handle ? (plugin_fn *)dlsym(handle, "truth_plugin") : NULL;
    if (!plugin)
        return false;
    truth_add(&loads);
    return true;
}

static bool unload(void) {
    const bool done = handle && dlclose(handle) == 0;

    handle = NULL;
    plugin = NULL;
    return done;
}

static void call(long times) {
    for (int n = 0; n < times; n++) {
        MARK(truth_host, "n %lu", evaluate());
        truth_add(&host_count);
        plugin(n, &plugin_count);
    }
}

static void *spin(void *argument) {
    (void)argument;
    for (;;) {
        truth_pass(&gate);
        if (!load())
            _exit(3);
        call(10);
        if (!unload())
            _exit(3);
    }
    return NULL;
}

/* Pages of the plugin that cannot be read (a gap between segments) are zeros in the copy. */
static bool occupy(void) {
    int from_self = -1;

    if (!plugin || !dl_iterate_phdr(measure, (void *)plugin))
        return false;
    occupied = span;
    copy = calloc(1, occupied.size);
    FILE *memory = fopen("/proc/self/mem", "rb");
    if (!copy || !memory)
        return false;
    from_self = fileno(memory);
    for (size_t at = 0; at < occupied.size; at += 4096)
        if (pread(from_self, copy + at, 4096, (off_t)(occupied.start + at)) != 4096)
            memset(copy + at, 0, 4096);
    fclose(memory);
    if (!unload() ||
        mmap(occupied.start, occupied.size, PROT_READ | PROT_WRITE,
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0) != occupied.start)
        return false;
    memcpy(occupied.start, copy, occupied.size);
    return true;
}

static long spoiled(void) {
    long changed = 0;

    for (size_t at = 0; at < occupied.size; at++)
        changed += occupied.start[at] != copy[at];
    return changed;
}

static bool trap(size_t offset) {
    static const unsigned char int3_and_ret[] = {0xcc, 0xc3};

    if (!occupied.size || offset + sizeof int3_and_ret > occupied.size)
        return false;
    memcpy(copy + offset, int3_and_ret, sizeof int3_and_ret);
    memcpy(occupied.start + offset, int3_and_ret, sizeof int3_and_ret);
    if (mprotect(occupied.start, occupied.size, PROT_READ | PROT_WRITE | PROT_EXEC))
        return false;
    ((void (*)(void))(occupied.start + offset))();
    return true;
}

static void say_counts(const char *word) {
    truth_say("%s truth_host=%lu truth_plugin=%lu evaluated=%lu loads=%lu own_traps=%lu", word,
              atomic_load(&host_count), atomic_load(&plugin_count), atomic_load(&evaluated),
              atomic_load(&loads), atomic_load(&own_traps));
}

static void set_path(const char *rest) { snprintf(path, sizeof path, "%s", rest); }

int main(void) {
    char line[4200];
    const char *rest;

    sigaction(SIGTRAP, &(struct sigaction){.sa_handler = on_trap}, NULL);
    atomic_store(&gate.closed, true);
    truth_start(spin, NULL);
    truth_close(&gate, 1);
    truth_ready();
    while (truth_next(line, sizeof line))
        if ((rest = truth_is(line, "load"))) {
            set_path(rest);
            const int ok = load() && dl_iterate_phdr(measure, (void *)plugin);
            truth_say("load ok=%d start=%lu", ok, ok ? (unsigned long)span.start : 0);
        } else if (truth_is(line, "unload")) {
            truth_say("unload ok=%d", unload());
        } else if ((rest = truth_is(line, "call"))) {
            call(plugin ? truth_number(rest, 1) : 0);
            say_counts("call");
        } else if ((rest = truth_is(line, "spin"))) {
            set_path(rest);
            truth_open(&gate);
            truth_say("spin ok=1");
        } else if (truth_is(line, "rest")) {
            truth_close(&gate, 1);
            say_counts("rest");
        } else if (truth_is(line, "occupy")) {
            truth_say("occupy ok=%d", occupy());
        } else if (truth_is(line, "spoiled")) {
            truth_say("spoiled bytes=%ld", spoiled());
        } else if ((rest = truth_is(line, "trap"))) {
            truth_say("trap ok=%d", trap((size_t)truth_number(rest, 0)));
        } else {
            say_counts(line);
        }
    return 0;
}
