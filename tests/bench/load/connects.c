/* Connects a second: `inflight` connections at a time go from TCP connect through CONNECT to CONNACK, say DISCONNECT
 * and are replaced by a new one with a new client id. The oldest is waited for first: one system call, and a broker
 * that answers the others meanwhile loses nothing.
 */
#include <stdio.h>
#include <stdlib.h>

#include "load.h"
#include "wire.h"

static int begin(uint16_t port, unsigned number) {
    char client_id[32];
    uint8_t packet[64 + TOPIC_MAX_BYTES];
    snprintf(client_id, sizeof client_id, "connect-%08u", number);
    int fd = open_tcp(port);
    write_all(fd, packet, put_connect(packet, client_id));
    return fd;
}

static void finish(int fd) {
    await_connack(fd);
    close_session(fd);
}

void measure_connects(const struct options *options) {
    int *under_way = allocate(options->inflight * sizeof *under_way); /* connection n at n % inflight */
    unsigned started = 0, finished = 0, finished_before = 0;
    double start = now_s() + options->warmup_s, end = start + options->duration_s, busy_s = 0;
    bool warm = false;

    while (started < options->inflight) {
        under_way[started] = begin(options->port, started);
        started++;
    }
    for (double now = now_s(); now < end; now = now_s()) {
        if (!warm && now >= start) {
            warm = true;
            start = now;
            finished_before = finished;
            busy_s = cpu_s();
        }
        int *oldest = &under_way[finished++ % options->inflight];
        finish(*oldest);
        *oldest = begin(options->port, started++);
    }
    double elapsed = now_s() - start;
    printf("{\"rate\": %.0f, \"connects\": %u, \"client_busy\": %.2f}\n", (finished - finished_before) / elapsed,
           finished - finished_before, (cpu_s() - busy_s) / elapsed);
    while (finished < started) finish(under_way[finished++ % options->inflight]);
    free(under_way);
}
