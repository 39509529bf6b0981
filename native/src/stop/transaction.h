/* SPDX-License-Identifier: MIT */
/* transaction.h: all edits or none. */
#ifndef MARKERJIT_TRANSACTION_H
#define MARKERJIT_TRANSACTION_H

#include "runs.h"

struct transaction {
    const struct mj_target *target;
    const struct mj_edit *edits;
    uint32_t count;
    int standing;               /* no thread of the process runs */
    struct steps_of_runs *runs; /* compared before; or NULL. Only while no thread runs */
    /* After each step with code. NULL: there is nothing to do. 0, or -errno. */
    int (*sync)(void *argument);
    void *argument;
    struct mj_report *report;
};

int transact(const struct transaction *transaction);

/* Put the old bytes of the first `written` edits back, after a failure with this status. Returns
   the status, with the report as it is, where that could be done; else MJ_NOT_UNDONE or MJ_GONE. */
int take_back(const struct transaction *transaction, uint32_t written, int status);

#endif
