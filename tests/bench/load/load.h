/* The measurements, one a file. Each opens its own connections, prints one line of JSON and returns. */
#ifndef FLOCKMQ_BENCH_LOAD_H
#define FLOCKMQ_BENCH_LOAD_H

#include <stdbool.h>
#include <stdint.h>

struct options {
    uint16_t port;
    unsigned publishers, subscribers, topics;
    bool fan; /* every publisher reaches every subscriber; otherwise publisher i reaches subscriber i */
    unsigned qos;
    unsigned window; /* messages a publisher may have under way */
    unsigned burst;  /* messages a write may carry */
    unsigned payload_bytes;
    unsigned connections, inflight;
    double warmup_s, duration_s;
};

void measure_throughput(const struct options *options);
void measure_round_trip(const struct options *options);
void measure_connects(const struct options *options);
void hold_idle(const struct options *options);
void relay(const struct options *options);

#endif
