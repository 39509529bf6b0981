/* SPDX-License-Identifier: MIT */
/*
 * truth_dlopen: loads and unloads a plugin with a marker.
 *
 *     truth_host    "n %d": in this program, before each call of the plugin
 *     truth_plugin  "n %d": in the plugin, n from 0
 *
 * Commands: `load PATH`, `unload`, `call N`, counts, quit. The three answer with `ok=1`, or with
 * `ok=0` and a reason.
 */
#include <dlfcn.h>
#include <markerjit/marker.h>

#include "truth.h"

typedef void plugin_fn(int n, truth_count *count);

static void *handle;
static plugin_fn *plugin;
static truth_count host_count, plugin_count;

static void load(const char *path) {
    if (handle) {
        truth_say("load ok=0 loaded already");
        return;
    }
    handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (handle)
        plugin = (plugin_fn *)dlsym(handle, "truth_plugin");
    if (handle && plugin)
        truth_say("load ok=1");
    else
        truth_say("load ok=0 %s", dlerror());
}

static void unload(void) {
    int failed = handle ? dlclose(handle) : 1;

    handle = NULL;
    plugin = NULL;
    truth_say("unload ok=%d", !failed);
}

static void call(long times) {
    if (!plugin) {
        truth_say("call ok=0 nothing is loaded");
        return;
    }
    for (int n = 0; n < times; n++) {
        MARK(truth_host, "n %d", n);
        truth_add(&host_count);
        plugin(n, &plugin_count);
    }
    truth_say("call ok=1");
}

int main(void) {
    char line[4200];
    const char *rest;

    truth_ready();
    while (truth_next(line, sizeof(line)))
        if ((rest = truth_is(line, "load")))
            load(rest);
        else if (truth_is(line, "unload"))
            unload();
        else if ((rest = truth_is(line, "call")))
            call(truth_number(rest, 1));
        else
            truth_say("%s truth_host=%lu truth_plugin=%lu", line, atomic_load(&host_count),
                      atomic_load(&plugin_count));
    return 0;
}
