/* Round trip: a publisher and a subscriber, one message in flight, blocking sockets.
 *
 * A sample is the time from the publisher's write to the subscriber's complete read. At QoS 1 and 2 both sides finish
 * their handshake before the next sample, so that acknowledgements of one message never share a turn with the next.
 */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "load.h"
#include "wire.h"

enum { SAMPLES_MAX = 2000000 };

/* Reads exactly one packet, which has to be of this type, and returns its packet id (0 for a PUBLISH at QoS 0). */
static uint16_t expect(int fd, enum packet_type type) {
    static uint8_t buffer[PACKET_MAX_BYTES];
    struct packet packet;
    size_t got = 0;
    while (!got || !next_packet(buffer, got, &packet)) {
        ssize_t n = read(fd, buffer + got, sizeof buffer - got);
        if (n < 0) fail("no packet type %d within %d s", type, ANSWER_MAX_S);
        if (n == 0) fail("the broker closed the connection while packet type %d was awaited", type);
        got += (size_t)n;
    }
    if (packet.type != type) fail("packet type %d where %d was awaited", packet.type, type);
    if (packet.body + packet.body_bytes != buffer + got) fail("more than the one message in flight arrived");
    if (type != PUBLISH) return read_u16(packet.body);
    return packet.qos ? read_u16(packet.body + 2 + read_u16(packet.body)) : 0;
}

static void send_ack(int fd, enum packet_type type, uint16_t packet_id) {
    uint8_t ack[ACK_BYTES];
    write_all(fd, ack, put_ack(ack, type, packet_id));
}

/* What both sides still owe the broker, and it them, after a delivery. `delivered_id`: the subscriber's packet id. */
static void finish(int publisher, int subscriber, unsigned qos, uint16_t delivered_id) {
    if (qos == 1) {
        send_ack(subscriber, PUBACK, delivered_id);
        expect(publisher, PUBACK);
    } else if (qos == 2) {
        expect(publisher, PUBCOMP);
        send_ack(subscriber, PUBREC, delivered_id);
        expect(subscriber, PUBREL);
        send_ack(subscriber, PUBCOMP, delivered_id);
    }
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

void measure_round_trip(const struct options *options) {
    static uint8_t publish[PACKET_MAX_BYTES], payload[PAYLOAD_MAX_BYTES];
    int subscriber = open_session(options->port, "rtt-subscriber");
    int publisher = open_session(options->port, "rtt-publisher");
    subscribe(subscriber, "bench/rtt", options->qos);

    double *samples_s = allocate(SAMPLES_MAX * sizeof *samples_s);
    size_t samples = 0;
    double start = now_s() + options->warmup_s, end = start + options->duration_s;
    for (uint16_t packet_id = 1; samples < SAMPLES_MAX; packet_id = packet_id == UINT16_MAX ? 1 : packet_id + 1) {
        size_t length = put_publish(publish, "bench/rtt", options->qos, packet_id, payload, options->payload_bytes);
        double sent = now_s();
        write_all(publisher, publish, length);
        if (options->qos == 2) { /* delivery may wait for PUBREL [MQTT-4.3.3], so the handshake belongs to the trip */
            expect(publisher, PUBREC);
            send_ack(publisher, PUBREL, packet_id);
        }
        uint16_t delivered_id = expect(subscriber, PUBLISH);
        double received = now_s();
        finish(publisher, subscriber, options->qos, delivered_id);
        if (sent >= start) samples_s[samples++] = received - sent;
        if (received >= end) break;
    }
    close_session(publisher);
    close_session(subscriber);

    if (!samples) fail("no round trip ended in the measured time");
    qsort(samples_s, samples, sizeof *samples_s, by_value);
    printf("{\"p50_us\": %.1f, \"p99_us\": %.1f, \"p999_us\": %.1f, \"samples\": %zu}\n", samples_s[samples / 2] * 1e6,
           samples_s[samples * 99 / 100] * 1e6, samples_s[samples * 999 / 1000] * 1e6, samples);
    free(samples_s);
}
