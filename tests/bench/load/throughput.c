/* Throughput: publishers keep a window of messages under way, subscribers account for each one.
 *
 * - A message is under way until it is delivered to every subscriber it has and, at QoS 1 and 2, acknowledged to its
 *   publisher. So nothing piles up without bound in a broker that reads faster than it delivers, and what is measured
 *   is what the broker can keep up.
 * - Every payload begins with its publisher's index and a sequence number. MQTT promises order within a topic
 *   [MQTT-4.6.0-6]; the topics take turns, so in each of them the sequence steps by the number of topics, and every gap
 *   (lost) and every step back (repeated) is seen.
 * - The figure is deliveries inside the measured time, which begins after the warm-up. Then publishers stop, and what
 *   is still under way must arrive: what doesn't within QUIET_S is lost.
 * - To stay out of the way, publishers don't encode: each owns a ring of ready packets (tiles) and only stamps sequence
 *   and packet id into them before a write that carries as many as window, burst and ring allow.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "load.h"
#include "wire.h"

enum {
    READ_BYTES = 1 << 17,
    RING_BYTES = 1 << 16,
    CONTROL_MAX_BYTES = 1 << 20, /* acknowledgements that the broker has not yet read, per connection */
    EVENTS_MAX = 256,
    WAIT_MS = 10
};
static const double QUIET_S = 2.0;

struct stamp {
    uint32_t publisher, sequence;
};

struct connection {
    int fd;
    bool is_publisher, blocked; /* blocked: the socket is full, EPOLLOUT is awaited */
    unsigned index;
    uint8_t *partial; /* the start of a packet whose end has not arrived */
    size_t partial_bytes;
    uint8_t *control; /* acknowledgements to write: [control_start, control_end) */
    size_t control_start, control_end;
};

struct publisher {
    struct connection connection;
    uint8_t *ring;
    size_t chunk_start, chunk_end; /* stamped bytes of the ring that are not written yet */
    unsigned next_tile;
    uint16_t packet_id;
    uint32_t sent, acknowledged;
    uint64_t settled; /* copies delivered or known to be lost */
};

struct subscriber {
    struct connection connection;
    uint32_t *expected; /* the next sequence, by publisher and topic */
};

static struct {
    const struct options *options;
    int poller;
    struct publisher *publishers;
    struct subscriber *subscribers;
    unsigned copies;                                   /* subscribers that each message has */
    unsigned tiles;                                    /* in each ring */
    size_t tile_bytes, stamp_offset, packet_id_offset; /* of a tile */
    uint64_t delivered, lost, repeated;
    bool sending;
    uint8_t input[PACKET_MAX_BYTES + READ_BYTES];
} run;

/* ---- setting up ---- */

static void watch(struct connection *connection, int operation) {
    struct epoll_event interest = {.events = EPOLLIN | (connection->blocked ? EPOLLOUT : 0), .data.ptr = connection};
    if (epoll_ctl(run.poller, operation, connection->fd, &interest)) fail("epoll_ctl: %s", strerror(errno));
}

static void open_connection(struct connection *connection, bool is_publisher, unsigned index) {
    char client_id[32];
    snprintf(client_id, sizeof client_id, "%s-%05u", is_publisher ? "publisher" : "subscriber", index);
    *connection = (struct connection){.fd = open_session(run.options->port, client_id),
                                      .is_publisher = is_publisher,
                                      .index = index,
                                      .partial = allocate(PACKET_MAX_BYTES),
                                      .control = allocate(CONTROL_MAX_BYTES)};
}

static void start_watching(struct connection *connection) {
    make_nonblocking(connection->fd);
    watch(connection, EPOLL_CTL_ADD);
}

static void open_subscriber(unsigned index) {
    const struct options *options = run.options;
    struct subscriber *subscriber = &run.subscribers[index];
    char filter[TOPIC_MAX_BYTES];
    snprintf(filter, sizeof filter, "bench/%05u/%s", options->fan ? 0 : index, options->topics > 1 ? "+" : "00");
    open_connection(&subscriber->connection, false, index);
    subscribe(subscriber->connection.fd, filter, options->qos);

    subscriber->expected = allocate(options->publishers * options->topics * sizeof *subscriber->expected);
    for (unsigned i = 0; i < options->publishers * options->topics; i++) subscriber->expected[i] = i % options->topics;
}

static void fill_ring(struct publisher *publisher) {
    const struct options *options = run.options;
    static uint8_t payload[PAYLOAD_MAX_BYTES];
    memset(payload, 'x', sizeof payload);
    publisher->ring = allocate(run.tiles * run.tile_bytes);
    for (unsigned tile = 0; tile < run.tiles; tile++) {
        char topic[TOPIC_MAX_BYTES];
        snprintf(topic, sizeof topic, "bench/%05u/%02u", options->fan ? 0 : publisher->connection.index,
                 tile % options->topics); /* digits: some brokers give other characters a meaning of their own */
        put_publish(publisher->ring + tile * run.tile_bytes, topic, options->qos, 0, payload, options->payload_bytes);
    }
}

static void measure_tile(void) {
    const struct options *options = run.options;
    static uint8_t packet[PACKET_MAX_BYTES], payload[PAYLOAD_MAX_BYTES];
    run.tile_bytes = put_publish(packet, "bench/00000/00", options->qos, 0, payload, options->payload_bytes);
    run.stamp_offset = run.tile_bytes - options->payload_bytes;
    run.packet_id_offset = run.stamp_offset - 2;
    unsigned rounds = (unsigned)(RING_BYTES / (run.tile_bytes * options->topics));
    run.tiles = options->topics * (rounds ? rounds : 1); /* whole rounds, so that the topics keep their turns */
}

static void set_up(const struct options *options) {
    run.options = options;
    run.poller = epoll_create1(EPOLL_CLOEXEC);
    run.publishers = allocate(options->publishers * sizeof *run.publishers);
    run.subscribers = allocate(options->subscribers * sizeof *run.subscribers);
    run.copies = options->fan ? options->subscribers : 1;
    run.sending = true;
    measure_tile();
    for (unsigned i = 0; i < options->subscribers; i++) open_subscriber(i);
    for (unsigned i = 0; i < options->publishers; i++) {
        open_connection(&run.publishers[i].connection, true, i);
        fill_ring(&run.publishers[i]);
    }
    for (unsigned i = 0; i < options->subscribers; i++) start_watching(&run.subscribers[i].connection);
    for (unsigned i = 0; i < options->publishers; i++) start_watching(&run.publishers[i].connection);
}

/* ---- writing ---- */

/* Writes [*start, end) of `bytes`; false, and EPOLLOUT is awaited, when the socket takes no more. */
static bool write_some(struct connection *connection, const uint8_t *bytes, size_t *start, size_t end) {
    if (*start == end) return true;
    ssize_t n = write(connection->fd, bytes + *start, end - *start);
    if (n < 0 && errno != EAGAIN) fail("write: %s", strerror(errno));
    if (n > 0) *start += (size_t)n;
    bool blocked = *start < end;
    if (blocked != connection->blocked) {
        connection->blocked = blocked;
        watch(connection, EPOLL_CTL_MOD);
    }
    return !blocked;
}

static bool write_control(struct connection *connection) {
    if (!write_some(connection, connection->control, &connection->control_start, connection->control_end)) return false;
    connection->control_start = connection->control_end = 0;
    return true;
}

static void queue_ack(struct connection *connection, enum packet_type type, uint16_t packet_id) {
    if (connection->control_end + ACK_BYTES > CONTROL_MAX_BYTES)
        fail("the broker reads no acknowledgements: %d bytes wait", CONTROL_MAX_BYTES);
    connection->control_end += put_ack(connection->control + connection->control_end, type, packet_id);
}

static uint32_t under_way(const struct publisher *publisher) {
    uint32_t done = (uint32_t)(publisher->settled / run.copies);
    if (run.options->qos && publisher->acknowledged < done) done = publisher->acknowledged;
    return publisher->sent - done;
}

static void stamp_tiles(struct publisher *publisher, unsigned count) {
    uint8_t *tile = publisher->ring + publisher->next_tile * run.tile_bytes;
    publisher->chunk_start = publisher->next_tile * run.tile_bytes;
    publisher->chunk_end = publisher->chunk_start + count * run.tile_bytes;
    for (unsigned i = 0; i < count; i++, tile += run.tile_bytes) {
        struct stamp stamp = {.publisher = publisher->connection.index, .sequence = publisher->sent++};
        memcpy(tile + run.stamp_offset, &stamp, sizeof stamp);
        if (!run.options->qos) continue;
        if (!++publisher->packet_id) publisher->packet_id = 1;
        tile[run.packet_id_offset] = (uint8_t)(publisher->packet_id >> 8);
        tile[run.packet_id_offset + 1] = (uint8_t)publisher->packet_id;
    }
    publisher->next_tile = (publisher->next_tile + count) % run.tiles;
}

/* One turn of a publisher: what is left of its last write, its handshakes, then at most one write of new messages.
 * True when it could go on at once. */
static bool publish(struct publisher *publisher) {
    struct connection *connection = &publisher->connection;
    if (!write_some(connection, publisher->ring, &publisher->chunk_start, publisher->chunk_end)) return false;
    if (!write_control(connection) || !run.sending) return false;

    uint32_t flying = under_way(publisher), window = run.options->window;
    unsigned count = flying < window ? window - flying : 0;
    if (!count) return false;
    if (count > run.options->burst) count = run.options->burst;
    if (count > run.tiles - publisher->next_tile) count = run.tiles - publisher->next_tile;
    stamp_tiles(publisher, count);
    return write_some(connection, publisher->ring, &publisher->chunk_start, publisher->chunk_end) &&
           under_way(publisher) < window;
}

/* ---- reading ---- */

static void account(struct subscriber *subscriber, struct stamp stamp) {
    const struct options *options = run.options;
    if (stamp.publisher >= options->publishers) fail("a message of an unknown publisher arrived");
    uint32_t *expected = &subscriber->expected[stamp.publisher * options->topics + stamp.sequence % options->topics];
    if (stamp.sequence < *expected) {
        run.repeated++;
        return;
    }
    uint32_t gap = (stamp.sequence - *expected) / options->topics;
    *expected = stamp.sequence + options->topics;
    run.delivered++;
    run.lost += gap;
    run.publishers[stamp.publisher].settled += 1 + gap;
}

static void take_for_subscriber(struct subscriber *subscriber, const struct packet *packet) {
    if (packet->type == PUBREL) {
        queue_ack(&subscriber->connection, PUBCOMP, read_u16(packet->body));
        return;
    }
    if (packet->type != PUBLISH) fail("a subscriber got packet type %d", packet->type);
    if (packet->body_bytes < run.options->payload_bytes + 2 + (packet->qos ? 2 : 0)) fail("a truncated PUBLISH arrived");
    struct stamp stamp;
    memcpy(&stamp, packet->body + packet->body_bytes - run.options->payload_bytes, sizeof stamp);
    account(subscriber, stamp);
    if (packet->qos)
        queue_ack(&subscriber->connection, packet->qos == 1 ? PUBACK : PUBREC,
                  read_u16(packet->body + 2 + read_u16(packet->body)));
}

static void take_for_publisher(struct publisher *publisher, const struct packet *packet) {
    if (packet->type == PUBREC)
        queue_ack(&publisher->connection, PUBREL, read_u16(packet->body));
    else if (packet->type == (run.options->qos == 2 ? PUBCOMP : PUBACK))
        publisher->acknowledged++;
    else
        fail("a publisher got packet type %d", packet->type);
}

static void receive(struct connection *connection) {
    memcpy(run.input, connection->partial, connection->partial_bytes);
    ssize_t n = read(connection->fd, run.input + connection->partial_bytes, READ_BYTES);
    if (n < 0 && errno == EAGAIN) return;
    if (n <= 0)
        fail("the broker closed the connection of %s %u after %llu deliveries",
             connection->is_publisher ? "publisher" : "subscriber", connection->index, (unsigned long long)run.delivered);

    size_t available = connection->partial_bytes + (size_t)n, at = 0;
    struct packet packet;
    for (size_t length; (length = next_packet(run.input + at, available - at, &packet)); at += length) {
        if (connection->is_publisher)
            take_for_publisher((struct publisher *)connection, &packet);
        else
            take_for_subscriber((struct subscriber *)connection, &packet);
    }
    connection->partial_bytes = available - at;
    memcpy(connection->partial, run.input + at, connection->partial_bytes);
}

/* ---- the run ---- */

/* One turn of the loop: reads what is there, then lets every publisher write. True when some could go on at once. */
static bool turn(bool eager) {
    struct epoll_event ready[EVENTS_MAX];
    int count = epoll_wait(run.poller, ready, EVENTS_MAX, eager ? 0 : WAIT_MS);
    for (int i = 0; i < count; i++) {
        struct connection *connection = ready[i].data.ptr;
        if (ready[i].events & (EPOLLIN | EPOLLHUP | EPOLLERR)) receive(connection);
        if (!connection->is_publisher) write_control(connection);
    }
    eager = false;
    for (unsigned i = 0; i < run.options->publishers; i++) eager |= publish(&run.publishers[i]);
    return eager;
}

static uint64_t missing(void) {
    uint64_t count = 0;
    for (unsigned i = 0; i < run.options->publishers; i++)
        count += (uint64_t)run.publishers[i].sent * run.copies - run.publishers[i].settled;
    return count;
}

static bool all_done(void) {
    for (unsigned i = 0; i < run.options->publishers; i++)
        if (under_way(&run.publishers[i])) return false;
    return true;
}

static void drain(void) {
    uint64_t before = run.delivered;
    run.sending = false;
    for (double quiet_since = now_s(); !all_done() && now_s() - quiet_since < QUIET_S;) {
        turn(false);
        if (run.delivered != before) quiet_since = now_s();
        before = run.delivered;
    }
    run.lost += missing();
}

static void close_all(void) {
    for (unsigned i = 0; i < run.options->publishers; i++) close_session(run.publishers[i].connection.fd);
    for (unsigned i = 0; i < run.options->subscribers; i++) close_session(run.subscribers[i].connection.fd);
}

void measure_throughput(const struct options *options) {
    set_up(options);
    double start = now_s() + options->warmup_s, now = now_s();
    bool eager = true;
    for (; now < start; now = now_s()) eager = turn(eager);
    uint64_t delivered_before = run.delivered;
    double busy_s = cpu_s(), end = (start = now) + options->duration_s;
    for (; now < end; now = now_s()) eager = turn(eager);
    uint64_t delivered = run.delivered - delivered_before;
    double elapsed = now - start;
    busy_s = cpu_s() - busy_s;

    drain();
    close_all();
    printf("{\"rate\": %.0f, \"delivered\": %llu, \"lost\": %llu, \"repeated\": %llu, \"client_busy\": %.2f}\n",
           (double)delivered / elapsed, (unsigned long long)delivered, (unsigned long long)run.lost,
           (unsigned long long)run.repeated, busy_s / elapsed);
}
