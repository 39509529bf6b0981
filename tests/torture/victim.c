/* SPDX-License-Identifier: MIT */
/*
 * victim: a program whose code is changed while all its threads execute it.
 *
 *     victim SHAPE [--across BOUNDARY SPLIT] [--places N] [--threads N] [--alias]
 *            [--births] [--signals] [--plugin PATH]
 *
 * Begins paused. Commands: pause, resume, counts; `place I` (where it is and its two forms);
 * `settled` (executes each place once and reports its form, and the form that the controller inside
 * left); `flip …` (see flip.c); quit. A thread that could not go on makes it say `died …` and end
 * with exit code 70.
 */
#include "torture.h"

/* The code that a controller outside needs in its target, under names. markerjit looks for it in
 * the vDSO and libc. */
__asm__(".text\n"
        "victim_syscall_ret: syscall; ret\n"
        "victim_sigreturn: mov $15, %eax; syscall\n"
        "victim_pop_rax_ret: pop %rax; ret\n");
static char scratch[MJ_SCRATCH_SIZE] __attribute__((aligned(MJ_PAGE)));
extern const char victim_syscall_ret[], victim_sigreturn[], victim_pop_rax_ret[];

static void say_hex(char *text, const uint8_t *bytes, unsigned size) {
    for (unsigned i = 0; i < size; i++)
        sprintf(text + 2 * i, "%02x", bytes[i]);
}

static void say_place(long index) {
    char old_bytes[2 * INSTRUCTION + 1], new_bytes[2 * INSTRUCTION + 1];
    const struct place *place = &places[index];

    say_hex(old_bytes, place->old_bytes, place->size);
    say_hex(new_bytes, place->new_bytes, place->size);
    truth_say("place at=%#lx code=%d old=%s new=%s", place->at, place->code, old_bytes, new_bytes);
}

static void say_settled(void) {
    char line[MAX_PLACES + 1] = "", expected[MAX_PLACES + 1] = "";

    for (unsigned i = 0; i < place_count; i++) {
        const uint32_t value = places[i].call();

        line[i] = value == OLD_VALUE ? '0' : value == NEW_VALUE ? '1' : '?';
        expected[i] = (char)('0' + forms[i]);
    }
    truth_say("settled forms=%s expected=%s", line, expected);
}

static void answer(const char *line) {
    const char *rest;

    if ((rest = truth_is(line, "place")) && truth_number(rest, 0) < (long)place_count)
        say_place(truth_number(rest, 0));
    else if ((rest = truth_is(line, "flip")))
        flip(rest);
    else if (truth_is(line, "settled"))
        say_settled();
    else {
        if (truth_is(line, "pause"))
            crowd_pause();
        else if (truth_is(line, "resume"))
            crowd_resume();
        crowd_say(line);
    }
}

int main(int argc, char **argv) {
    struct layout layout = {.shape = argc > 1 ? argv[1] : "", .count = 16};
    struct crowd crowd = {.workers = 2};
    char line[128];

    for (int i = 2; i < argc; i++)
        if (strcmp(argv[i], "--across") == 0 && i + 2 < argc) {
            layout.boundary = (unsigned)atoi(argv[++i]);
            layout.split = (unsigned)atoi(argv[++i]);
        } else if (strcmp(argv[i], "--places") == 0 && i + 1 < argc)
            layout.count = (unsigned)atoi(argv[++i]);
        else if (strcmp(argv[i], "--threads") == 0 && i + 1 < argc)
            crowd.workers = atoi(argv[++i]);
        else if (strcmp(argv[i], "--plugin") == 0 && i + 1 < argc)
            crowd.plugin = argv[++i];
        else if (strcmp(argv[i], "--alias") == 0)
            layout.alias = true;
        else if (strcmp(argv[i], "--births") == 0)
            crowd.births = true;
        else if (strcmp(argv[i], "--signals") == 0)
            crowd.signals = true;
        else
            return 2;
    if (crowd.workers < 1 || crowd.workers > MAX_WORKERS || !make_places(&layout))
        return 2;
    install_handlers();
    crowd_start(&crowd);
    truth_say("ready pid=%d syscall_ret=%#lx sigreturn=%#lx pop_rax_ret=%#lx scratch=%#lx",
              (int)getpid(), (long)victim_syscall_ret, (long)victim_sigreturn,
              (long)victim_pop_rax_ret, (long)scratch);
    while (truth_next(line, sizeof(line)))
        answer(line);
    return 0;
}
