#include "wire.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

void fail(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    fputs("load: ", stderr);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    exit(1);
}

double now_s(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

double cpu_s(void) {
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
           (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) * 1e-6;
}

void *allocate(size_t bytes) {
    void *memory = calloc(1, bytes);
    if (!memory) fail("no memory for %zu bytes", bytes);
    return memory;
}

/* ---- encoders ---- */

static size_t put_header(uint8_t *out, enum packet_type type, unsigned flags, size_t body_bytes) {
    size_t n = 0;
    out[n++] = (uint8_t)((unsigned)type << 4 | flags);
    do {
        uint8_t digit = body_bytes & 0x7f;
        body_bytes >>= 7;
        out[n++] = (uint8_t)(digit | (body_bytes ? 0x80 : 0));
    } while (body_bytes);
    return n;
}

static size_t put_u16(uint8_t *out, uint16_t value) {
    out[0] = (uint8_t)(value >> 8);
    out[1] = (uint8_t)value;
    return 2;
}

static size_t put_string(uint8_t *out, const char *text) {
    size_t length = strlen(text);
    put_u16(out, (uint16_t)length);
    memcpy(out + 2, text, length);
    return 2 + length;
}

size_t put_connect(uint8_t *out, const char *client_id) {
    static const uint8_t clean_session = 0x02;
    size_t n = put_header(out, CONNECT, 0, 10 + 2 + strlen(client_id));
    n += put_string(out + n, "MQTT");
    out[n++] = 4; /* protocol level: 3.1.1 */
    out[n++] = clean_session;
    n += put_u16(out + n, 0); /* no keep-alive: idle connections stay silent */
    return n + put_string(out + n, client_id);
}

size_t put_subscribe(uint8_t *out, const char *filter, unsigned qos) {
    size_t n = put_header(out, SUBSCRIBE, 2, 2 + 2 + strlen(filter) + 1);
    n += put_u16(out + n, 1);
    n += put_string(out + n, filter);
    out[n++] = (uint8_t)qos;
    return n;
}

size_t put_publish(uint8_t *out, const char *topic, unsigned qos, uint16_t packet_id, const uint8_t *payload,
                   size_t payload_bytes) {
    size_t n = put_header(out, PUBLISH, qos << 1, 2 + strlen(topic) + (qos ? 2 : 0) + payload_bytes);
    n += put_string(out + n, topic);
    if (qos) n += put_u16(out + n, packet_id);
    memcpy(out + n, payload, payload_bytes);
    return n + payload_bytes;
}

size_t put_ack(uint8_t *out, enum packet_type type, uint16_t packet_id) {
    size_t n = put_header(out, type, type == PUBREL ? 2 : 0, 2);
    return n + put_u16(out + n, packet_id);
}

/* ---- sockets ---- */

int open_tcp(uint16_t port) {
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0) fail("socket: %s (raise the limit of open files: ulimit -n)", strerror(errno));
    struct sockaddr_in broker = {
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    if (connect(fd, (struct sockaddr *)&broker, sizeof broker)) fail("connect to 127.0.0.1:%u: %s", port, strerror(errno));
    int on = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    struct timeval patience = {.tv_sec = ANSWER_MAX_S}; /* while it blocks: an answer that doesn't come is a failure */
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    return fd;
}

void write_all(int fd, const uint8_t *bytes, size_t count) {
    while (count) {
        ssize_t n = write(fd, bytes, count);
        if (n < 0) fail("write: %s", strerror(errno));
        bytes += n;
        count -= (size_t)n;
    }
}

void read_exactly(int fd, uint8_t *into, size_t count) {
    while (count) {
        ssize_t n = read(fd, into, count);
        if (n < 0 && errno == EAGAIN) fail("the broker owes an answer for %d s", ANSWER_MAX_S);
        if (n < 0) fail("read: %s", strerror(errno));
        if (n == 0) fail("the broker closed the connection");
        into += n;
        count -= (size_t)n;
    }
}

void await_connack(int fd) {
    uint8_t connack[4];
    read_exactly(fd, connack, sizeof connack);
    if (connack[0] != CONNACK << 4 || connack[3] != 0) fail("CONNECT refused: return code %u", connack[3]);
}

int open_session(uint16_t port, const char *client_id) {
    uint8_t packet[64 + TOPIC_MAX_BYTES];
    int fd = open_tcp(port);
    write_all(fd, packet, put_connect(packet, client_id));
    await_connack(fd);
    return fd;
}

void subscribe(int fd, const char *filter, unsigned qos) {
    uint8_t packet[64 + TOPIC_MAX_BYTES], suback[5];
    write_all(fd, packet, put_subscribe(packet, filter, qos));
    read_exactly(fd, suback, sizeof suback);
    if (suback[0] != SUBACK << 4 || suback[4] != qos) fail("SUBSCRIBE to %s at QoS %u: granted 0x%02x", filter, qos, suback[4]);
}

void make_nonblocking(int fd) {
    if (fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK)) fail("fcntl: %s", strerror(errno));
}

void close_session(int fd) {
    static const uint8_t disconnect[] = {DISCONNECT << 4, 0};
    struct linger reset = {.l_onoff = 1, .l_linger = 0};
    if (write(fd, disconnect, sizeof disconnect) < 0) { /* already gone: nothing to say goodbye to */
    }
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
    close(fd);
}
