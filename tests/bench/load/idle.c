/* Idle connections: each has one subscription with a wildcard of its own, no keep-alive, and no traffic.
 *
 * Prints its line once all of them stand, then holds them until standard input ends; what a connection costs is read
 * from outside, as the broker's resident memory.
 */
#include <stdio.h>
#include <unistd.h>

#include "load.h"
#include "wire.h"

void hold_idle(const struct options *options) {
    int *sockets = allocate(options->connections * sizeof *sockets);
    double start = now_s();
    for (unsigned i = 0; i < options->connections; i++) {
        char client_id[32], filter[TOPIC_MAX_BYTES];
        snprintf(client_id, sizeof client_id, "device-%08u", i);
        snprintf(filter, sizeof filter, "devices/%08u/commands/+", i);
        sockets[i] = open_session(options->port, client_id);
        subscribe(sockets[i], filter, 1);
    }
    printf("{\"connections\": %u, \"rate\": %.0f}\n", options->connections, options->connections / (now_s() - start));
    fflush(stdout);

    char byte;
    while (read(STDIN_FILENO, &byte, 1) > 0) {
    }
    for (unsigned i = 0; i < options->connections; i++) close_session(sockets[i]);
}
