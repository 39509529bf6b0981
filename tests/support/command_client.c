/* SPDX-License-Identifier: MIT */
/* command_client.c: a command of a shell that command_server.py forks.

   It hands its standard input, output and error to the server whose name is in COMMAND_SERVER,
   passes signals on to the process that was forked, and ends as that does. The server takes the
   rest, the words, the environment and the directory, from this process. */
#include <errno.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

static volatile pid_t command;

static void pass_on(int number) {
    if (command)
        kill(command, number);
}

static void pass_on_what_is_not_ignored(int number) {
    struct sigaction action;

    if (sigaction(number, NULL, &action) == 0 && action.sa_handler != SIG_IGN) {
        memset(&action, 0, sizeof action);
        action.sa_handler = pass_on;
        sigaction(number, &action, NULL);
    }
}

static int connected(const char *name) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    size_t size = strlen(name);
    int server = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

    if (size > sizeof address.sun_path - 1)
        return -1;
    memcpy(address.sun_path + 1, name, size);
    size += offsetof(struct sockaddr_un, sun_path) + 1;
    return connect(server, (struct sockaddr *)&address, (socklen_t)size) ? -1 : server;
}

static int send_streams(int server) {
    int streams[] = {0, 1, 2};
    char text = '?', control[CMSG_SPACE(sizeof streams)] = {0};
    struct iovec part = {&text, 1};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    struct cmsghdr *header;

    message.msg_control = control;
    message.msg_controllen = sizeof control;
    header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof streams);
    memcpy(CMSG_DATA(header), streams, sizeof streams);
    return sendmsg(server, &message, 0) == 1;
}

static int answer(int server) {
    char text[32];
    ssize_t size;

    do
        size = recv(server, text, sizeof text - 1, 0);
    while (size < 0 && errno == EINTR);
    if (size <= 0) {
        fprintf(stderr, "the server of commands is gone\n");
        exit(125);
    }
    text[size] = 0;
    return atoi(text);
}

int main(void) {
    static const int passed_on[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2};
    const char *name = getenv("COMMAND_SERVER");
    int server = name ? connected(name) : -1, code;

    for (size_t i = 0; i < sizeof passed_on / sizeof *passed_on; i++)
        pass_on_what_is_not_ignored(passed_on[i]);
    if (server < 0 || !send_streams(server)) {
        fprintf(stderr, "there is no server of commands\n");
        return 125;
    }
    command = answer(server);
    code = answer(server);
    if (code < 0) {
        signal(-code, SIG_DFL);
        raise(-code);
    }
    return code;
}
