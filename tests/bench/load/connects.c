/* Connects a second: `inflight` connections at a time go from TCP connect through CONNECT to CONNACK, say DISCONNECT
 * and are replaced by a new one with a new client id.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "load.h"
#include "wire.h"

enum { STALL_MS = 5000 };

static void begin(int poller, uint16_t port, unsigned number) {
    char client_id[32];
    uint8_t packet[64 + TOPIC_MAX_BYTES];
    snprintf(client_id, sizeof client_id, "connect-%08u", number);
    int fd = open_tcp(port);
    write_all(fd, packet, put_connect(packet, client_id));
    struct epoll_event interest = {.events = EPOLLIN, .data.fd = fd};
    if (epoll_ctl(poller, EPOLL_CTL_ADD, fd, &interest)) fail("epoll_ctl: %s", strerror(errno));
}

static void finish(int fd) {
    uint8_t connack[4];
    read_exactly(fd, connack, sizeof connack);
    if (connack[0] != CONNACK << 4 || connack[3] != 0) fail("CONNECT refused: return code %u", connack[3]);
    close_session(fd); /* takes it out of the poller as well */
}

void measure_connects(const struct options *options) {
    int poller = epoll_create1(EPOLL_CLOEXEC);
    unsigned started = 0, finished = 0, finished_before = 0;
    double start = now_s() + options->warmup_s, end = start + options->duration_s, now = now_s(), busy_s = 0;
    bool warm = false;

    while (now < end) {
        while (started - finished < options->inflight) begin(poller, options->port, started++);
        struct epoll_event ready[64];
        int count = epoll_wait(poller, ready, 64, STALL_MS);
        if (count <= 0) fail("no CONNACK for %d ms after %u connections", STALL_MS, finished);
        for (int i = 0; i < count; i++, finished++) finish(ready[i].data.fd);
        now = now_s();
        if (!warm && now >= start) {
            warm = true;
            start = now;
            finished_before = finished;
            busy_s = cpu_s();
        }
    }
    double elapsed = now - start;
    printf("{\"rate\": %.0f, \"connects\": %u, \"client_busy\": %.2f}\n", (finished - finished_before) / elapsed,
           finished - finished_before, (cpu_s() - busy_s) / elapsed);
    for (; finished < started; finished++) { /* the broker still owes these an answer */
        struct epoll_event ready;
        if (epoll_wait(poller, &ready, 1, STALL_MS) <= 0) fail("no CONNACK for %d ms at the end", STALL_MS);
        finish(ready.data.fd);
    }
    close(poller);
}
