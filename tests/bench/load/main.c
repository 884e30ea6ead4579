/* flockmq's load client: `load MEASUREMENT --port PORT [--option VALUE ...]`. One thread, loopback only, JSON out. */
#include "load.h"

#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "wire.h"

static const struct {
    const char *name;
    void (*run)(const struct options *);
    const char *does;
} measurements[] = {
    {"throughput", measure_throughput, "messages delivered a second, each one accounted for"},
    {"rtt", measure_round_trip, "one message in flight: percentiles of publish to delivery"},
    {"connects", measure_connects, "CONNECT to CONNACK, a second"},
    {"idle", hold_idle, "opens --connections with one subscription each, holds them until stdin ends"},
    {"relay", relay, "no client: the least a broker could do, to find the client's own ceiling"},
};
enum { MEASUREMENTS = sizeof measurements / sizeof *measurements };

enum option_key {
    PORT = 1, PUBLISHERS, SUBSCRIBERS, TOPICS, FAN, QOS, WINDOW, BURST, PAYLOAD, CONNECTIONS, INFLIGHT, WARMUP, DURATION
};

static const struct {
    struct option option;
    long least, most;
    const char *does;
} table[] = {
    {{"port", required_argument, 0, PORT}, 1, 65535, "of the broker on 127.0.0.1"},
    {{"publishers", required_argument, 0, PUBLISHERS}, 1, 1000, ""},
    {{"subscribers", required_argument, 0, SUBSCRIBERS}, 1, 1000, ""},
    {{"topics", required_argument, 0, TOPICS}, 1, 64, "in turn; more than one: the subscriber's filter ends in +"},
    {{"fan", no_argument, 0, FAN}, 0, 0, "every publisher reaches every subscriber (otherwise pairs)"},
    {{"qos", required_argument, 0, QOS}, 0, 2, ""},
    {{"window", required_argument, 0, WINDOW}, 1, 60000, "messages a publisher has under way"},
    {{"burst", required_argument, 0, BURST}, 1, 60000, "messages a write may carry"},
    {{"payload", required_argument, 0, PAYLOAD}, 8, PAYLOAD_MAX_BYTES, "bytes"},
    {{"connections", required_argument, 0, CONNECTIONS}, 1, 1000000, "idle ones"},
    {{"inflight", required_argument, 0, INFLIGHT}, 1, 1000, "CONNECTs waiting for their CONNACK"},
    {{"warmup-ms", required_argument, 0, WARMUP}, 0, 60000, "before the measured time"},
    {{"duration-ms", required_argument, 0, DURATION}, 1, 600000, "measured"},
};
enum { OPTIONS = sizeof table / sizeof *table };

static void usage(FILE *out) {
    fputs("usage: load MEASUREMENT --port PORT [--OPTION VALUE ...]\n\nmeasurements:\n", out);
    for (int i = 0; i < MEASUREMENTS; i++) fprintf(out, "  %-14s %s\n", measurements[i].name, measurements[i].does);
    fputs("options:\n", out);
    for (int i = 0; i < OPTIONS; i++) fprintf(out, "  --%-12s %s\n", table[i].option.name, table[i].does);
}

static long number(int index) {
    if (table[index].option.has_arg == no_argument) return 1;
    char *end;
    errno = 0;
    long value = strtol(optarg, &end, 10);
    if (errno || *end || end == optarg || value < table[index].least || value > table[index].most)
        fail("--%s %s: a whole number from %ld to %ld is wanted", table[index].option.name, optarg, table[index].least,
             table[index].most);
    return value;
}

static void take(struct options *options, enum option_key key, long value) {
    switch (key) {
    case PORT: options->port = (uint16_t)value; break;
    case PUBLISHERS: options->publishers = (unsigned)value; break;
    case SUBSCRIBERS: options->subscribers = (unsigned)value; break;
    case TOPICS: options->topics = (unsigned)value; break;
    case FAN: options->fan = true; break;
    case QOS: options->qos = (unsigned)value; break;
    case WINDOW: options->window = (unsigned)value; break;
    case BURST: options->burst = (unsigned)value; break;
    case PAYLOAD: options->payload_bytes = (unsigned)value; break;
    case CONNECTIONS: options->connections = (unsigned)value; break;
    case INFLIGHT: options->inflight = (unsigned)value; break;
    case WARMUP: options->warmup_s = (double)value / 1e3; break;
    case DURATION: options->duration_s = (double)value / 1e3; break;
    }
}

int main(int count, char **arguments) {
    struct options options = {.publishers = 1, .subscribers = 1, .topics = 1, .window = 16384, .burst = 60000,
                              .payload_bytes = 64, .connections = 10000, .inflight = 64, .warmup_s = 0.3, .duration_s = 1};
    struct option names[OPTIONS + 1] = {0};
    for (int i = 0; i < OPTIONS; i++) names[i] = table[i].option;

    int index;
    for (int key; (key = getopt_long(count, arguments, "", names, &index)) != -1;) {
        if (key == '?') {
            usage(stderr);
            return 2;
        }
        take(&options, (enum option_key)key, number(index));
    }
    if (!options.fan && options.publishers != options.subscribers)
        fail("pairs need as many --subscribers as --publishers (or give --fan)");

    signal(SIGPIPE, SIG_IGN); /* a closed connection is an error of write, named where it happens */
    for (int i = 0; optind == count - 1 && i < MEASUREMENTS; i++) {
        if (strcmp(arguments[optind], measurements[i].name)) continue;
        measurements[i].run(&options);
        return 0;
    }
    usage(stderr);
    return 2;
}
