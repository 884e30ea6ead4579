/* The relay: the least a broker could do, so that the client's own ceiling is known.
 *
 * It answers CONNECT, SUBSCRIBE and the acknowledgements as a receiver must; a publisher's PUBLISH packets go on as they
 * came, packet ids and all, to the subscribers whose filter begins with the same ROUTE_BYTES as its first topic.
 * Writes block: the client always reads, so they end. It runs until it is killed.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <netinet/tcp.h>
#include <unistd.h>

#include "load.h"
#include "wire.h"

enum { ROUTE_BYTES = 11, PEERS_MAX = 65536, INPUT_BYTES = 1 << 17, REPLIES_BYTES = 1 << 17, EVENTS_MAX = 256 };

struct peer {
    int fd;
    bool routed; /* it has published or subscribed */
    char route[ROUTE_BYTES];
    size_t partial_bytes;
    uint8_t *partial; /* NULL while it has none */
};

/* What one read of a peer leads to: its packets are answered and passed on together. */
struct batch {
    uint8_t replies[REPLIES_BYTES];
    size_t replies_bytes;
    const uint8_t *run_start, *run_end; /* successive PUBLISH packets, not passed on yet */
    bool ended;                         /* DISCONNECT */
};

static struct peer *peers[PEERS_MAX]; /* by descriptor */
static int subscribers[PEERS_MAX], subscriber_count;
static struct batch batch;

static void forget(struct peer *peer) {
    for (int i = 0; i < subscriber_count; i++)
        if (subscribers[i] == peer->fd) subscribers[i--] = subscribers[--subscriber_count];
    peers[peer->fd] = NULL;
    close(peer->fd);
    free(peer->partial);
    free(peer);
}

/* A client that has gone away is noticed by the read that follows. */
static void send_bytes(int fd, const uint8_t *bytes, size_t count) {
    for (ssize_t n; count && (n = write(fd, bytes, count)) > 0; bytes += n) count -= (size_t)n;
}

static void pass_on(const struct peer *publisher) {
    if (batch.run_start == batch.run_end) return;
    for (int i = 0; i < subscriber_count; i++)
        if (!memcmp(peers[subscribers[i]]->route, publisher->route, ROUTE_BYTES))
            send_bytes(subscribers[i], batch.run_start, (size_t)(batch.run_end - batch.run_start));
    batch.run_start = batch.run_end;
}

static void set_route(struct peer *peer, const uint8_t *text) {
    size_t length = read_u16(text);
    memcpy(peer->route, text + 2, length < ROUTE_BYTES ? length : ROUTE_BYTES);
    peer->routed = true;
}

static void reply(const void *packet, size_t bytes) {
    if (batch.replies_bytes + bytes > REPLIES_BYTES) fail("relay: more than %d bytes of replies to one read", REPLIES_BYTES);
    memcpy(batch.replies + batch.replies_bytes, packet, bytes);
    batch.replies_bytes += bytes;
}

static void reply_ack(enum packet_type type, uint16_t packet_id) {
    uint8_t ack[ACK_BYTES];
    reply(ack, put_ack(ack, type, packet_id));
}

static void take_publish(struct peer *peer, const struct packet *packet, const uint8_t *start, size_t length) {
    if (!peer->routed) set_route(peer, packet->body);
    if (batch.run_end != start) {
        pass_on(peer);
        batch.run_start = start;
    }
    batch.run_end = start + length;
    if (packet->qos) reply_ack(packet->qos == 1 ? PUBACK : PUBREC, read_u16(packet->body + 2 + read_u16(packet->body)));
}

static void take(struct peer *peer, const struct packet *packet, const uint8_t *start, size_t length) {
    const uint8_t connack[] = {CONNACK << 4, 2, 0, 0};
    uint8_t suback[] = {SUBACK << 4, 3, packet->body[0], packet->body[1], packet->body[packet->body_bytes - 1]};
    switch (packet->type) {
    case PUBLISH: take_publish(peer, packet, start, length); break;
    case PUBREC: reply_ack(PUBREL, read_u16(packet->body)); break;
    case PUBREL: reply_ack(PUBCOMP, read_u16(packet->body)); break;
    case CONNECT: reply(connack, sizeof connack); break;
    case SUBSCRIBE:
        set_route(peer, packet->body + 2);
        subscribers[subscriber_count++] = peer->fd;
        reply(suback, sizeof suback);
        break;
    case DISCONNECT: batch.ended = true; break;
    default: break; /* PUBACK and PUBCOMP need no answer */
    }
}

static void keep_partial(struct peer *peer, const uint8_t *bytes, size_t count) {
    if (count && !peer->partial) peer->partial = allocate(PACKET_MAX_BYTES);
    if (count) memcpy(peer->partial, bytes, count);
    peer->partial_bytes = count;
}

static void serve(struct peer *peer) {
    static uint8_t input[PACKET_MAX_BYTES + INPUT_BYTES];
    if (peer->partial_bytes) memcpy(input, peer->partial, peer->partial_bytes);
    ssize_t n = read(peer->fd, input + peer->partial_bytes, INPUT_BYTES);
    if (n <= 0) {
        forget(peer);
        return;
    }
    size_t available = peer->partial_bytes + (size_t)n, at = 0;
    struct packet packet;
    batch.replies_bytes = 0;
    batch.run_start = batch.run_end = input;
    batch.ended = false;
    for (size_t length; (length = next_packet(input + at, available - at, &packet)); at += length)
        take(peer, &packet, input + at, length);
    pass_on(peer);
    send_bytes(peer->fd, batch.replies, batch.replies_bytes);
    if (batch.ended)
        forget(peer);
    else
        keep_partial(peer, input + at, available - at);
}

static void watch(int poller, int fd) {
    struct epoll_event interest = {.events = EPOLLIN, .data.fd = fd};
    if (epoll_ctl(poller, EPOLL_CTL_ADD, fd, &interest)) fail("epoll_ctl: %s", strerror(errno));
}

static void accept_all(int poller, int listener) {
    for (int fd; (fd = accept(listener, NULL, NULL)) >= 0; watch(poller, fd)) {
        if (fd >= PEERS_MAX) fail("relay: more than %d connections", PEERS_MAX);
        int on = 1;
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
        peers[fd] = allocate(sizeof *peers[fd]);
        peers[fd]->fd = fd;
    }
}

static int listen_on(uint16_t port) {
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1;
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    struct sockaddr_in here = {.sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    if (bind(listener, (struct sockaddr *)&here, sizeof here) || listen(listener, 1024))
        fail("relay: listen on 127.0.0.1:%u: %s", port, strerror(errno));
    make_nonblocking(listener);
    return listener;
}

void relay(const struct options *options) {
    int listener = listen_on(options->port), poller = epoll_create1(EPOLL_CLOEXEC);
    watch(poller, listener);
    for (;;) {
        struct epoll_event ready[EVENTS_MAX];
        int count = epoll_wait(poller, ready, EVENTS_MAX, -1);
        for (int i = 0; i < count; i++) {
            if (ready[i].data.fd == listener)
                accept_all(poller, listener);
            else if (peers[ready[i].data.fd])
                serve(peers[ready[i].data.fd]);
        }
    }
}
