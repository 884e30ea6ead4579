/* What every part of the load client needs: sockets on the loopback, and the few MQTT 3.1.1 packets it speaks.
 *
 * Whatever goes wrong ends the process with one line on standard error and exit status 1 (see `fail`): a figure from a
 * run in which something failed would be worse than none. Numbers carry their unit in their name.
 */
#ifndef FLOCKMQ_BENCH_WIRE_H
#define FLOCKMQ_BENCH_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

enum packet_type {
    CONNECT = 1,
    CONNACK = 2,
    PUBLISH = 3,
    PUBACK = 4,
    PUBREC = 5,
    PUBREL = 6,
    PUBCOMP = 7,
    SUBSCRIBE = 8,
    SUBACK = 9,
    DISCONNECT = 14
};

enum {
    TOPIC_MAX_BYTES = 64,
    PAYLOAD_MAX_BYTES = 65536,
    PACKET_MAX_BYTES = PAYLOAD_MAX_BYTES + TOPIC_MAX_BYTES + 16,
    ACK_BYTES = 4,
    ANSWER_MAX_S = 5 /* how long a blocking read waits */
};

/* One packet found in a buffer; `body` points into that buffer. */
struct packet {
    enum packet_type type;
    unsigned qos; /* of a PUBLISH */
    const uint8_t *body;
    size_t body_bytes;
};

_Noreturn void fail(const char *format, ...) __attribute__((format(printf, 1, 2)));

double now_s(void);    /* monotonic */
double cpu_s(void);    /* user and system time of this process */
void *allocate(size_t bytes); /* zeroed, or the end of the process */

static inline uint16_t read_u16(const uint8_t *at) { return (uint16_t)(at[0] << 8 | at[1]); }

/* Finds the packet that starts at `at`. Returns its whole length in bytes, or 0 when more bytes are needed. */
static inline size_t next_packet(const uint8_t *at, size_t available, struct packet *found) {
    size_t length = 0, header = 1;
    for (unsigned shift = 0;; shift += 7, header++) {
        if (header >= available) return 0;
        if (shift > 21) fail("malformed remaining length [MQTT-2.2.3]");
        length |= (size_t)(at[header] & 0x7f) << shift;
        if (!(at[header] & 0x80)) break;
    }
    header++;
    if (header + length > PACKET_MAX_BYTES) fail("packet of %zu bytes, at most %d expected", header + length, PACKET_MAX_BYTES);
    if (header + length > available) return 0;
    found->type = (enum packet_type)(at[0] >> 4);
    found->qos = at[0] >> 1 & 3;
    found->body = at + header;
    found->body_bytes = length;
    return header + length;
}

/* Encoders: each writes one packet at `out` and returns its length in bytes. */
size_t put_connect(uint8_t *out, const char *client_id);
size_t put_subscribe(uint8_t *out, const char *filter, unsigned qos);
size_t put_publish(uint8_t *out, const char *topic, unsigned qos, uint16_t packet_id, const uint8_t *payload,
                   size_t payload_bytes);
size_t put_ack(uint8_t *out, enum packet_type type, uint16_t packet_id);

/* Blocking sockets with TCP_NODELAY, connected to 127.0.0.1 only. */
int open_tcp(uint16_t port);
void await_connack(int fd);
int open_session(uint16_t port, const char *client_id);   /* CONNECT .. CONNACK, clean session */
void subscribe(int fd, const char *filter, unsigned qos); /* SUBSCRIBE .. SUBACK */
void write_all(int fd, const uint8_t *bytes, size_t count);
void read_exactly(int fd, uint8_t *into, size_t count);
void make_nonblocking(int fd);
void close_session(int fd); /* DISCONNECT, then a reset: leaves no socket in TIME_WAIT */

#endif
