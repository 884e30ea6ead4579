/* Load in the shape of a fleet: many connections, one message a write. A Python client would be slower than the broker.
 *
 *   fleet connects PORT [OPTION VALUE]...   TCP connect, CONNECT, CONNACK, DISCONNECT, close; always `inflight` at a time
 *   fleet pairs PORT [OPTION VALUE]...      `pairs` publishers, each with a topic and a subscriber of its own; each
 *                                           message is a write of its own
 *
 * It prints one line of JSON: events a second during the measured time, how busy this process was, and the processor
 * time of the broker (`pid`, as often as it has processes). Each subscriber expects the numbers 0, 1, 2, ... of its
 * publisher, so `lost` and `repeated` are exact. Exit code 1: the broker refused, closed, stalled, or sent what isn't
 * expected; stderr says what.
 *
 * One thread, one epoll. Bounds: CONNECTIONS_MAX connections, READ_BYTES a read, `window` messages under way a pair.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum {
  CONNECTIONS_MAX = 4096,
  PIDS_MAX = 64,
  READ_BYTES = 64 * 1024,
  PAYLOAD_MAX = 1024,
  FRAME_MAX = PAYLOAD_MAX + 64,
  EVENTS_MAX = 256,
  ROUNDS_PER_READ = 16, /* of one message a publisher, before subscribers are read */
  IDS = 65535,
  PACE_MS = 1,
  WAIT_MS = 10,
  STALL_S = 5,
  DRAIN_S = 5,
};
enum { CONNECT = 0x10, CONNACK = 0x20, PUBLISH = 0x30, PUBACK = 0x40, SUBSCRIBE = 0x82, SUBACK = 0x90, DISCONNECT = 0xE0 };

static int poller;

static struct {
  int port;
  double seconds, warmup;
  int inflight;                   /* connects */
  int pairs, window, payload, qos; /* pairs */
  double rate;                    /* messages a second that are offered; 0: as fast as the window lets */
  int pids[PIDS_MAX], pid_count;
} options = {.seconds = 1, .warmup = 0.5, .inflight = 64, .pairs = 100, .window = 1000, .payload = 64};

static void fail(const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  vfprintf(stderr, format, arguments);
  fputc('\n', stderr);
  exit(1);
}

/* --- clocks --------------------------------------------------------------------------------------------------------- */

static double seconds_of(clockid_t clock) {
  struct timespec t;
  clock_gettime(clock, &t);
  return t.tv_sec + t.tv_nsec * 1e-9;
}

static double monotonic_s(void) {
  return seconds_of(CLOCK_MONOTONIC);
}

static double broker_cpu_s(void) { /* of the broker's processes: fields 14 and 15 of /proc/PID/stat */
  double ticks = 0;
  for (int i = 0; i < options.pid_count; i++) {
    char path[64], text[1024];
    snprintf(path, sizeof path, "/proc/%d/stat", options.pids[i]);
    FILE *file = fopen(path, "r");
    if (!file) continue; /* it has ended */
    text[fread(text, 1, sizeof text - 1, file)] = 0;
    fclose(file);
    unsigned long user = 0, system = 0;
    char *after_name = strrchr(text, ')');
    if (after_name) sscanf(after_name + 1, " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu", &user, &system);
    ticks += user + system;
  }
  return ticks / sysconf(_SC_CLK_TCK);
}

struct mark { /* a moment of the run */
  double at, client_s, broker_s;
  uint64_t count;
};

static struct mark mark(uint64_t count) {
  return (struct mark){monotonic_s(), seconds_of(CLOCK_PROCESS_CPUTIME_ID), broker_cpu_s(), count};
}

static void tell(struct mark from, struct mark to, uint64_t lost, uint64_t repeated) {
  double took = to.at - from.at;
  printf("{\"rate\": %.1f, \"count\": %llu, \"lost\": %llu, \"repeated\": %llu, \"client_busy\": %.4f, \"broker_busy\": %.4f}\n",
         (to.count - from.count) / took, (unsigned long long)(to.count - from.count), (unsigned long long)lost,
         (unsigned long long)repeated, (to.client_s - from.client_s) / took, (to.broker_s - from.broker_s) / took);
}

/* --- MQTT 3.1.1, as far as this needs it ----------------------------------------------------------------------------- */

static size_t put_string(uint8_t *to, const char *text) {
  size_t length = strlen(text);
  to[0] = length >> 8, to[1] = length & 0xFF;
  memcpy(to + 2, text, length);
  return length + 2;
}

static size_t put_head(uint8_t *to, uint8_t type, size_t length) {
  size_t at = 0;
  to[at++] = type;
  do {
    to[at++] = (length & 0x7F) | (length > 0x7F ? 0x80 : 0);
    length >>= 7;
  } while (length);
  return at;
}

static size_t connect_packet(uint8_t *to, const char *client_id) {
  static const uint8_t fixed[] = {0, 4, 'M', 'Q', 'T', 'T', 4, 2 /* clean session */, 0, 60};
  size_t at = put_head(to, CONNECT, sizeof fixed + 2 + strlen(client_id));
  memcpy(to + at, fixed, sizeof fixed);
  at += sizeof fixed;
  return at + put_string(to + at, client_id);
}

static size_t subscribe_packet(uint8_t *to, const char *filter, int qos) {
  size_t at = put_head(to, SUBSCRIBE, 2 + 2 + strlen(filter) + 1);
  to[at++] = 0, to[at++] = 1;
  at += put_string(to + at, filter);
  to[at++] = qos;
  return at;
}

/* The whole packet's size, or 0 if not all of it is there. `head`: bytes before what follows the length. */
static size_t packet_size(const uint8_t *data, size_t there, size_t *head) {
  size_t length = 0;
  for (size_t at = 1; at < there && at < 5; at++) {
    length |= (size_t)(data[at] & 0x7F) << 7 * (at - 1);
    if (data[at] & 0x80) continue;
    *head = at + 1;
    return there >= *head + length ? *head + length : 0;
  }
  return 0;
}

/* --- sockets --------------------------------------------------------------------------------------------------------- */

static void stalled(int signal) {
  (void)signal;
  static const char text[] = "the broker stalled\n";
  if (write(STDERR_FILENO, text, sizeof text - 1)) {}
  _exit(1);
}

static int open_socket(void) {
  int fd = socket(AF_INET, SOCK_STREAM, 0), one = 1;
  struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(options.port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  if (fd < 0 || connect(fd, (struct sockaddr *)&to, sizeof to)) fail("127.0.0.1:%d: %s", options.port, strerror(errno));
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  return fd;
}

static void put(int fd, const uint8_t *data, size_t size) {
  if (send(fd, data, size, MSG_NOSIGNAL) != (ssize_t)size) fail("the broker takes no packet: %s", strerror(errno));
}

static void expect(int fd, uint8_t type, size_t size) { /* a short packet, whose last byte is a code; waits for it */
  uint8_t data[8] = {0};
  alarm(STALL_S);
  ssize_t got = recv(fd, data, size, MSG_WAITALL);
  if (got <= 0) fail("the broker closed the connection instead of answering");
  if (data[0] != type || data[size - 1] > 2) fail("the broker answered 0x%02X %u, not 0x%02X", data[0], data[size - 1], type);
}

static int begin(const char *kind, uint64_t number) { /* a connection whose CONNECT is sent */
  char client_id[64];
  uint8_t packet[128];
  snprintf(client_id, sizeof client_id, "fleet-%d-%s-%llu", getpid(), kind, (unsigned long long)number);
  int fd = open_socket();
  put(fd, packet, connect_packet(packet, client_id));
  return fd;
}

/* --- connects -------------------------------------------------------------------------------------------------------- */

static void finish(int fd) {
  static const uint8_t disconnect[] = {DISCONNECT, 0};
  expect(fd, CONNACK, 4);
  put(fd, disconnect, sizeof disconnect);
  close(fd);
}

/* Waits for the oldest connection first: that costs one system call, and the broker can answer the others meanwhile. */
static void measure_connects(void) {
  static int under_way[CONNECTIONS_MAX];
  uint64_t begun = 0, done = 0;
  struct mark from = {0};
  double starts_at = monotonic_s() + options.warmup;
  for (bool measures = false;;) {
    double now = monotonic_s();
    if (!measures && now >= starts_at) from = mark(done), measures = true;
    if (measures && now >= from.at + options.seconds) break;
    for (; begun - done < (uint64_t)options.inflight; begun++) under_way[begun % options.inflight] = begin("c", begun);
    finish(under_way[done++ % options.inflight]);
  }
  tell(from, mark(done), 0, 0);
  for (; done < begun; done++) finish(under_way[done % options.inflight]);
}

/* --- pairs ----------------------------------------------------------------------------------------------------------- */

struct side { /* one connection of a pair, and what it read of a packet that isn't whole */
  int fd;
  size_t there;
  uint8_t data[READ_BYTES];
};

static struct pair {
  struct side publisher, subscriber;
  uint8_t frame[FRAME_MAX]; /* the PUBLISH, whose number and packet id are written anew for each message */
  size_t frame_size, number_at, id_at;
  size_t unsent; /* bytes of the frame that the kernel had no room for */
  uint64_t sent, delivered, acknowledged;
} *pairs;

static uint64_t delivered, lost, repeated;

static void make_frame(struct pair *pair, const char *topic) {
  size_t id_bytes = options.qos ? 2 : 0;
  uint8_t *frame = pair->frame;
  size_t at = put_head(frame, PUBLISH | options.qos << 1, 2 + strlen(topic) + id_bytes + options.payload);
  at += put_string(frame + at, topic);
  pair->id_at = at;
  pair->number_at = at += id_bytes;
  memset(frame + at, 'x', options.payload);
  pair->frame_size = at + options.payload;
}

static void set_up_pair(int index) {
  struct pair *pair = &pairs[index];
  char topic[64];
  uint8_t packet[128];
  snprintf(topic, sizeof topic, "fleet/%d/%d", getpid(), index);
  pair->subscriber.fd = begin("s", index);
  pair->publisher.fd = begin("p", index);
  expect(pair->subscriber.fd, CONNACK, 4);
  expect(pair->publisher.fd, CONNACK, 4);
  put(pair->subscriber.fd, packet, subscribe_packet(packet, topic, options.qos));
  expect(pair->subscriber.fd, SUBACK, 5);
  make_frame(pair, topic);
  struct side *sides[] = {&pair->publisher, &pair->subscriber};
  for (int i = 0; i < 2; i++) {
    struct epoll_event event = {.events = EPOLLIN, .data.u64 = (uint64_t)index << 1 | i};
    if (epoll_ctl(poller, EPOLL_CTL_ADD, sides[i]->fd, &event)) fail("epoll: %s", strerror(errno));
  }
}

static bool publish(struct pair *pair) { /* one message by one write; false: there is no room for it */
  if (!pair->unsent) {
    uint64_t known = options.qos ? pair->acknowledged : pair->delivered;
    if (pair->sent - (known < pair->delivered ? known : pair->delivered) >= (uint64_t)options.window) return false;
    memcpy(pair->frame + pair->number_at, &pair->sent, sizeof pair->sent);
    if (options.qos) {
      unsigned id = pair->sent % IDS + 1;
      pair->frame[pair->id_at] = id >> 8, pair->frame[pair->id_at + 1] = id & 0xFF;
    }
    pair->sent++;
    pair->unsent = pair->frame_size;
  }
  ssize_t wrote = send(pair->publisher.fd, pair->frame + pair->frame_size - pair->unsent, pair->unsent, MSG_DONTWAIT | MSG_NOSIGNAL);
  if (wrote < 0 && errno != EAGAIN) fail("the broker closed a publisher: %s", strerror(errno));
  if (wrote > 0) pair->unsent -= wrote;
  return !pair->unsent;
}

static void take_message(struct pair *pair, const uint8_t *packet, size_t size) {
  uint64_t number;
  if (size != pair->frame_size) fail("a subscriber got a PUBLISH of %zu bytes, not of %zu", size, pair->frame_size);
  memcpy(&number, packet + pair->number_at, sizeof number);
  if (number < pair->delivered) {
    repeated++;
    return;
  }
  lost += number - pair->delivered;
  pair->delivered = number + 1;
  delivered++;
}

/* All whole packets that can be read at once. A subscriber's acknowledgements are one write. */
static void receive(struct pair *pair, bool is_subscriber) {
  struct side *side = is_subscriber ? &pair->subscriber : &pair->publisher;
  static uint8_t answers[READ_BYTES];
  ssize_t got = recv(side->fd, side->data + side->there, READ_BYTES - side->there, MSG_DONTWAIT);
  if (got == 0 || (got < 0 && errno != EAGAIN)) fail("the broker closed a connection");
  if (got < 0) return;
  side->there += got;
  size_t at = 0, answer = 0, head = 0, size;
  while ((size = packet_size(side->data + at, side->there - at, &head))) {
    const uint8_t *packet = side->data + at;
    if (is_subscriber && (packet[0] & 0xF0) == PUBLISH) {
      take_message(pair, packet, size);
      if (options.qos) {
        answers[answer++] = PUBACK, answers[answer++] = 2;
        answers[answer++] = packet[pair->id_at], answers[answer++] = packet[pair->id_at + 1];
      }
    } else if (!is_subscriber && packet[0] == PUBACK) {
      pair->acknowledged++;
    } else {
      fail("the broker sent 0x%02X", packet[0]);
    }
    at += size;
  }
  memmove(side->data, side->data + at, side->there -= at);
  if (answer) put(side->fd, answers, answer);
}

static bool receive_all(int patience_ms) { /* false: there was nothing for so long */
  struct epoll_event events[EVENTS_MAX];
  int count = epoll_wait(poller, events, EVENTS_MAX, patience_ms);
  for (int i = 0; i < count; i++) receive(&pairs[events[i].data.u64 >> 1], events[i].data.u64 & 1);
  return count > 0;
}

static bool is_under_way(void) {
  for (int i = 0; i < options.pairs; i++)
    if (pairs[i].delivered < pairs[i].sent || (options.qos && pairs[i].acknowledged < pairs[i].sent)) return true;
  return false;
}

static void drain(void) { /* finish what is half sent; what doesn't come within DRAIN_S is lost */
  for (double ends_at = monotonic_s() + DRAIN_S; is_under_way() && monotonic_s() < ends_at;) {
    for (int i = 0; i < options.pairs; i++)
      if (pairs[i].unsent) publish(&pairs[i]);
    receive_all(WAIT_MS);
  }
  for (int i = 0; i < options.pairs; i++) lost += pairs[i].sent - pairs[i].delivered;
}

static void measure_pairs(void) {
  pairs = calloc(options.pairs, sizeof *pairs);
  poller = epoll_create1(0);
  if (!pairs || poller < 0) fail("no memory for %d pairs", options.pairs);
  for (int i = 0; i < options.pairs; i++) set_up_pair(i);
  struct mark from = {0};
  double began_at = monotonic_s(), heard_at = began_at;
  uint64_t offered = 0;
  for (bool measures = false; ; ) {
    double now = monotonic_s();
    if (!measures && now >= began_at + options.warmup) from = mark(delivered), measures = true;
    if (measures && now >= from.at + options.seconds) break;
    bool all_have_room = true;
    for (int round = 0; round < ROUNDS_PER_READ && all_have_room; round++)
      for (int i = 0; i < options.pairs; i++) {
        if (options.rate && offered >= (uint64_t)((now - began_at) * options.rate)) {
          all_have_room = false;
          break;
        }
        if (publish(&pairs[i])) offered++;
        else all_have_room = false;
      }
    if (receive_all(all_have_room ? 0 : options.rate ? PACE_MS : WAIT_MS)) heard_at = now;
    if (now - heard_at > STALL_S) fail("the broker stalled");
  }
  struct mark to = mark(delivered);
  drain();
  tell(from, to, lost, repeated);
}

/* --- command line ---------------------------------------------------------------------------------------------------- */

static void read_option(const char *name, const char *value) {
  static const struct { const char *name; int *whole; double *part; } known[] = {
    {"inflight", &options.inflight, NULL}, {"pairs", &options.pairs, NULL}, {"window", &options.window, NULL},
    {"payload", &options.payload, NULL}, {"qos", &options.qos, NULL}, {"rate", NULL, &options.rate},
    {"seconds", NULL, &options.seconds}, {"warmup", NULL, &options.warmup},
  };
  if (!strcmp(name, "pid") && options.pid_count < PIDS_MAX) {
    options.pids[options.pid_count++] = atoi(value);
    return;
  }
  for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
    if (strcmp(name, known[i].name)) continue;
    if (known[i].whole) *known[i].whole = atoi(value);
    else *known[i].part = atof(value);
    return;
  }
  fail("no option %s", name);
}

int main(int count, char **arguments) {
  if (count < 3 || count % 2 == 0) fail("usage: fleet connects|pairs PORT [OPTION VALUE]...");
  options.port = atoi(arguments[2]);
  for (int i = 3; i < count; i += 2) read_option(arguments[i], arguments[i + 1]);
  if (options.inflight < 1 || options.inflight > CONNECTIONS_MAX) fail("inflight: 1 to %d", CONNECTIONS_MAX);
  if (options.pairs < 1 || options.pairs > CONNECTIONS_MAX / 2) fail("pairs: 1 to %d", CONNECTIONS_MAX / 2);
  if (options.payload < (int)sizeof(uint64_t) || options.payload > PAYLOAD_MAX) fail("payload: 8 to %d", PAYLOAD_MAX);
  if (options.window < 1 || options.window > IDS || options.qos < 0 || options.qos > 1) fail("window: 1 to %d; qos: 0 or 1", IDS);
  signal(SIGALRM, stalled);
  if (!strcmp(arguments[1], "connects")) measure_connects();
  else if (!strcmp(arguments[1], "pairs")) measure_pairs();
  else fail("no measurement %s", arguments[1]);
}
