"""Every named bound of the broker: name, unit last; one section a part. Exported as metrics by telemetry."""

from __future__ import annotations

from typing import Final

# Configuration and management
CONFIG_MAX_BYTES: Final = 1024 * 1024
SECRET_MAX_BYTES: Final = 4096
MANAGEMENT_REQUEST_MAX_BYTES: Final = 1024
MANAGEMENT_REQUEST_LINE_MAX_BYTES: Final = 2048
MANAGEMENT_HEADER_MAX_BYTES: Final = 4096
MANAGEMENT_HEADERS_MAX: Final = 32
"""Of one request, each of which may be as large."""
MANAGEMENT_CONNECTIONS_MAX: Final = 256
"""One more ends the one that was accepted, or answered, the longest ago."""
MANAGEMENT_REQUEST_MAX_S: Final = 10.0
"""How long a connection may take to say its first request, its TLS handshake included; and then for a body."""
MANAGEMENT_ANSWER_MAX_S: Final = 10.0
"""How long a client may take to read what it is answered, but for what its socket holds."""
MANAGEMENT_UNWANTED_MAX_BYTES: Final = 512 * 1024
"""What comes behind an answer and begins no other request, as the rest of a body that nobody reads; with more of it the
connection ends. A whole request is smaller."""
MANAGEMENT_UNWANTED_MAX_S: Final = 1.0
"""How long an answered client may take to say it: who hasn't by then has read the answer."""
MANAGEMENT_ACCEPT_AGAIN_S: Final = 0.1
"""When the next connection is accepted after one for which there was no descriptor."""
MANAGEMENT_KEEP_ALIVE_MAX_SECONDS: Final = 60
METRICS_MADE_EVERY_S: Final = 0.1
"""What /metrics shows is made so often at most, for all that ask meanwhile."""
LINK_KEY_MIN_BYTES: Final = 16
LINK_KEYS_MAX: Final = 2
"""Two while the cluster's key is replaced."""
API_KEY_MIN_BYTES: Final = 32
"""Of a key that is configured; the server draws as many for those that it makes."""
API_KEYS_MAX: Final = 1000
SECRETS_MAX: Final = 16
"""Of the cluster's own, in its log."""
AUDIT_MAX: Final = 10_000
"""Changes that the audit log keeps; the oldest go."""
AUDIT_ABOUT_MAX_CHARS: Final = 256
AUDIT_DROPPED_TOGETHER_MAX: Final = 100
"""Those that go with a new one."""
API_FAILURES_MAX_ADDRESSES: Final = 10_000
"""Addresses whose wrong keys are counted; more push out the one that was quiet for the longest."""
API_FAILURES_FORGOTTEN_S: Final = 60.0
"""After so long without one, an address starts anew."""
API_FAILURE_MIN_S: Final = 0.1
API_FAILURE_MAX_S: Final = 5.0
"""How long the answer to a wrong key takes: twice as long each time."""
API_FAILURES_WAITING_MAX: Final = 64
"""Answers to wrong keys that wait; more of them are said at once that there are too many."""

# --- cluster: links, forwarding, membership -------------------------------------------------------------------------
LINK_GREETING_MAX_BYTES: Final = 512
LINK_HANDSHAKE_MAX_S: Final = 3.0
LINK_HANDSHAKES_MAX: Final = 256
"""Accepted connections that are not authenticated yet; one more makes room by closing the oldest."""
LINK_FRAME_MAX_BYTES: Final = 32 * 1024 * 1024
LINK_FORWARD_FRAME_BYTES: Final = 256 * 1024
"""Runs of messages are cut into frames of about this size, so that control can overtake."""
LINK_TRANSPORT_HIGH_BYTES: Final = 256 * 1024
"""What was handed to the transport can't be overtaken any more."""
LINK_CONTROL_MAX_BYTES: Final = 64 * 1024 * 1024
"""A peer that leaves this much control unread is closed."""
LINK_CONTROL_CHOKED_BYTES: Final = 16 * 1024 * 1024
"""Beyond it, notes of homes wait; the largest of them fits in before the link is closed."""
LINK_REQUESTS_MAX: Final = 4096
LINK_STREAMS_MAX: Final = 64
LINK_STREAM_CREDIT_ITEMS: Final = 8
LINK_HEARTBEAT_S: Final = 0.5
LINK_LOOK_S: Final = 0.1
"""How often a node looks whether it has news that others shouldn't wait for until its next heartbeat."""
LINK_SILENT_MAX_S: Final = 3.0
LINK_UNANSWERED_MAX_S: Final = 5.0
"""What a heartbeat may need through a full link, and its answer back; then only one way of the link is open."""
LINK_LEAVE_MAX_S: Final = 1.0
"""How long a node that stops waits until its peers have read everything and close; once for its tunnels, and then for
the links that may have carried them."""
FORWARDED_MAX_S: Final = 10.0
"""How long a node that stops waits for nodes and homes that it has messages for: until a link is back, or they are
purged."""
FORWARDED_LOOK_S: Final = 0.05
LINK_REDIAL_MIN_S: Final = 0.1
LINK_REDIAL_MAX_S: Final = 2.0
RETRIED_QUIETLY_MAX_S: Final = 10.0
"""For so long nobody is warned of what fails because others aren't there, and is tried again."""
EMBEDDED_RETRY_MIN_S: Final = 0.05
EMBEDDED_RETRY_MAX_S: Final = 5.0
"""How long is waited before an embedded Valkey that ended is started again: twice as long each time."""
EMBEDDED_STEADY_S: Final = 2.0
"""One that ends again within so long hasn't come back. Shorter than UNFIT_AFTER_S: one that does come back at once is
never why a node isn't ready."""
EMBEDDED_ROOM_MIN_BYTES: Final = 1024 * 1024
"""Where less than this is left on its disk as it ends, that is what is said to be mended."""
TASK_AGAIN_S: Final = 1.0
"""How long after its error a task begins anew."""
SEED_RESOLVE_S: Final = 2.0
SEED_ADDRESSES_MAX: Final = 64
PEER_FORWARD_MAX_BYTES: Final = 32 * 1024 * 1024
"""QoS 0 messages that wait for one node; more are dropped and counted."""
PEER_RESEND_MAX_BYTES: Final = 32 * 1024 * 1024
PEER_RESEND_MAX_MESSAGES: Final = 100_000
"""QoS >= 1 messages that one node hasn't accepted; more are refused to their publishers (0x97)."""
PEER_BLOCKED_BYTES: Final = 4 * 1024 * 1024
PEER_DRAINED_BYTES: Final = 1 * 1024 * 1024
PEER_IDLE_S: Final = 60.0
"""A link between two replicants that carried no message for so long is closed."""
TUNNEL_WINDOW_BYTES: Final = 256 * 1024
"""What one tunnel through a core has on its way in one direction, wherever it waits."""
TUNNEL_FRAME_BYTES: Final = 64 * 1024
TUNNELS_MAX: Final = 1024
"""Through one link; a core holds TUNNEL_WINDOW_BYTES for each at most."""
TUNNEL_AFTER_S: Final = 2.0
"""A node that can't be dialled for so long is reached through a core, until it can."""
PEERS_FORMER_MAX: Final = 1024
"""Purged nodes whose last number is known, in case they come back."""
REJOIN_SLICE_FILTERS: Final = 1000
"""Routes that a node which comes back writes at a time, and clients that it looks at between two turns of the loop."""
ROUTES_TRIED_AGAIN_MAX: Final = 100_000
"""Routes of a node, or a slot, that were to go while the log took nothing, and are deleted every few seconds."""
FORWARD_WAIT_S: Final = 0.2
COURIER_LANE_MAX_BYTES: Final = 32 * 1024 * 1024
COURIER_LANE_MAX_MESSAGES: Final = 100_000
"""QoS >= 1 messages for sessions of one core that it hasn't accepted; more are refused to their publishers (0x97). From
half of it on publishers are paused.
"""
COURIER_WINDOW_BYTES: Final = 4 * 1024 * 1024
"""How much of it is on its way at once; the rest waits at the sender."""
COURIER_STUCK_BYTES: Final = 1024 * 1024
"""Of it, what may be for slots whose home can't make it durable, before publishers to these are paused."""
COURIER_STUCK_MAX_BYTES: Final = 8 * 1024 * 1024
"""What of that doesn't count for the window: publishers that are paused may have sent as much before."""
TAKEN_APART_AFTER_S: Final = 0.1
"""What isn't durable for so long is stuck: what came behind it, and is durable, is accepted without it."""
CROWDED_KEPT_S: Final = 1.0
"""A slot counts as crowded for so long after its home said so: it says so four times as often."""
TAKERS_KEPT_S: Final = 2.0
"""While Redis is short of memory: for so long a node believes what a home said of who takes messages at once."""
TAKERS_LOOKED_AT_MAX: Final = 2_000
"""Sessions that a home looks at for this in a beat of 0.1 s; of a slot that it doesn't come to, all would wait."""
TAKERS_FILTERS_MAX: Final = 64
TAKERS_FILTERS_MAX_BYTES: Final = 4 * 1024
"""Filters of sessions of a slot that would have messages wait; where there are more, all of the slot would."""
COURIER_LOOK_S: Final = 0.02
"""How often a congested lane, or what waits for the log, is looked at."""
HEADS_NOTES_MAX: Final = 64
"""Notes of cores that a node's tables haven't reached: of more the oldest go, which tell of less."""
HEADS_CORES_MAX: Final = 64
"""Cores whose clocks a node compares with its own."""
HEADS_QUICKEST_S: Final = 10.0
"""For so long, and as long again, the quickest note of a core counts."""
CLOCKS_AGREE_S: Final = 2.0
"""Clocks that differ by no more agree; that is also how late a heartbeat may come."""
CLOCK_JUMP_AFTER_S: Final = 5.0
"""For so long most cores must say that the cluster's time is wrong before it is set."""
CLOCK_SLEW_S: Final = 0.005
"""By so much, each second, the cluster's time follows the clocks that agree."""
CLOCK_OFF_MAX_S: Final = 2.0
"""A node whose clock differs by more from the cluster's time raises an alarm."""
MEMBER_UNLINKED_MAX_S: Final = 1.0
MEMBER_VOTE_MAX_S: Final = 2.0
"""What a core said longer ago is no vote any more, nor a voice of the majority."""
MEMBER_FENCE_S: Final = 1.0
"""A node that hears of no majority for so long acknowledges nothing that needs others: no longer than what must pass
before a majority may purge it."""
SLOTS_UNSERVED_MAX_S: Final = 5.0
"""A core that hears nothing from Redis for so long, while the leader does, loses its slots; and gets some again when it
has heard it for as long."""
SLOTS_WRITTEN_ANEW_S: Final = 10.0
"""When Redis lost data its homes write it anew; for so long no slot leaves one that can."""
UNFIT_AFTER_S: Final = 5.0
"""A node whose tables are old for so long, or that Redis is away for while another node hears it, isn't ready."""
LEAVE_MAX_S: Final = 1.0
MEMBER_VOTES_MAX: Final = 1024
LEASE_TTL_S: Final = 2.0
LEASE_RENEW_S: Final = 0.25
TRIM_EVERY_S: Final = 10.0
CORE_WAIT_MAX_S: Final = 2.0
CORE_RETRY_S: Final = 0.05
CORE_UNABLE_S: Final = 60.0
"""How long a replicant doesn't move back to a core that was unable to write for it."""
OVERVIEW_WAIT_S: Final = 2.0
"""How long a node that is asked about the whole cluster waits for another one's answer."""
DIRECTORY_SLICE_ROWS: Final = 100
"""Rows of clients or sessions that are made between two turns of the event loop."""
DIRECTORY_SLICE_IDS: Final = 2000
"""Client ids of one slot that are put in order between two turns."""
DIRECTORY_LOOKED_AT_MAX: Final = 5000
"""Clients or sessions of one core that are looked at for a page, which may have fewer rows where they are filtered."""
DIRECTORY_PAGE_MAX_BYTES: Final = 1024 * 1024
"""Client ids and filters of one page, but for the last of them."""
DIRECTORY_NAME_MAX_CHARS: Final = 1024
"""What is shown of a user name."""
MOVE_EVERY_S: Final = 5.0
"""One replicant of a core moves to another at most so often."""
MOVE_DIFFERENCE: Final = 2
"""One core has so many more replicants than another: they spread."""
MEMBER_UNHEARD_MAX_S: Final = 6.0
EVENTS_MAX: Final = 20_000
EVENTS_FLUSH_S: Final = 1.0
EVENTS_ENTRY_MAX: Final = 1000
EVENTS_NOTES_MAX: Final = 1000
EVENTS_STREAM_MAX_BYTES: Final = 64 * 1024 * 1024
EVENTS_LOOK_BYTES: Final = 8 * 1024 * 1024
"""So much a core appends to a stream before it looks again how large that is."""

# --- home: who holds a client id ------------------------------------------------------------------------------------
SLOTS: Final = 1024
ATTACH_WAIT_S: Final = 6.0
KICK_WAIT_S: Final = 5.0
KICK_UNLINKED_S: Final = 0.25
ATTACHES_MAX: Final = 100_000
ATTACHES_MAX_BYTES: Final = 64 * 1024 * 1024
"""Client ids, with their wills, whose homes haven't answered yet; a CONNECT beyond them is refused with 0x88."""
HOME_WILLS_MAX: Final = 1_000_000
HOME_WILLS_MAX_BYTES: Final = 256 * 1024 * 1024
"""Wills that a home keeps of sessions that end with their nodes; those beyond are lost if the node dies."""
HOME_BATCH_MAX: Final = 4096
HOME_OUT_MAX: Final = 100_000
"""Answers and kicks, each, for one node while there is no link to it; more are dropped: when it is linked it asks anew,
and registers whom it has."""
REGISTERS_EARLY_MAX: Final = 100_000
"""What nodes said of slots whose sessions aren't here yet; of more they are asked again when these are."""
EARLY_KEPT_S: Final = 10.0
"""What a node says of a slot that this core hasn't heard to be its own is kept for so long."""
SLOT_LOST_MAX_S: Final = 5.0
"""A slot that another core took, and that this core's table says to be its own for so long, is taken again."""
HOME_RETURN_S: Final = 5.0
"""For so long a home that took over a session waits for its connection before it holds its client for gone."""
RETURNING_MAX: Final = 100_000
RETURNING_MAX_BYTES: Final = 64 * 1024 * 1024
"""Clients that are back at sessions with wills meanwhile, and wait for what is said of their connections before."""
MARKS_KEPT_S: Final = 3600.0
"""A node that is purged may come back for so long, as another incarnation, and repeat what it sent before."""
MARKS_STRANGERS_MAX: Final = 256
"""Such nodes at once; of more those that went first are forgotten."""
HOME_TURN_MAX_S: Final = 0.005
"""Work on all sessions of a node, or of slots that went or came, gives the loop back after so long."""
HOME_PACE_S: Final = 0.01
"""How often a home, or a node, whose link takes no more notes is looked at."""
HOME_BEHIND_S: Final = 0.25
"""Sessions whose deliveries found no link or no room send them again after so long."""
INTAKE_SENDER_MAX_BYTES: Final = 64 * 1024 * 1024
"""Messages of one node that its sessions' home can't take yet; a sender that goes beyond its window loses its link."""
MARKS_PER_SLOT_MAX: Final = 4096
"""Sessions that publish at QoS 2 whose last number a slot knows; of others it takes a repeat for new."""
STORE_STOP_MAX_S: Final = 2.0
"""How long a core that stops waits until its sessions are durable."""
DELIVERIES_MAX_BYTES: Final = 64 * 1024 * 1024
"""What sessions that run here send to the clients of one other node and its link hasn't taken; beyond it they wait."""

# --- home: sessions that last, in Redis -----------------------------------------------------------------------------
STORE_QUEUE_MAX_BYTES: Final = 64 * 1024 * 1024
"""Changes of sessions that aren't durable yet; beyond it no messages are taken in, only what ends some."""
STORE_CHANGE_BYTES: Final = 100
"""What one change counts for beside its bytes."""
STORE_BATCH_MAX_BYTES: Final = 1024 * 1024
"""One call of a function for one slot takes no more, but for the end of a letter; what is left goes into the next."""
STORE_LETTER_MAX_BYTES: Final = 16 * 1024 * 1024
"""All copies of a letter at one slot, and its mark, go by one call, or some of them come twice when their home dies in
between. Those beyond may."""
STORE_TURN_MAX_BYTES: Final = 4 * 1024 * 1024
"""Batches of all slots in one round trip."""
STORE_TAKE_SLOTS: Final = 64
"""Slots that are read together, at most, when they are taken."""
STORE_SLOT_SMALL_BYTES: Final = 128 * 1024
"""Slots that have more are read behind those that have less; those that have eight times as much behind them; …"""
STORE_READ_MAX_BYTES: Final = 16 * 1024 * 1024
"""What a core has read of slots of one server, and not taken over; a slot that is larger alone is read by itself."""
STORE_READ_KEYS: Final = 128
STORE_READ_FIELDS: Final = 256
"""Keys in one round trip, fields in one reply, at most, to a core that takes slots."""
STORE_READ_BYTES: Final = 2 * 1024 * 1024
"""What one round trip should bring: as many keys and fields are asked for, by what those before brought."""
SLOT_SPOILT_RETRY_S: Final = 5.0
"""How often a slot is looked at of which something in Redis can't be read."""
STORE_WATCH_EVERY_S: Final = 1.0
REDIS_SHORT_PART: Final = 0.75
REDIS_ROOM_PART: Final = 0.70
"""Of its `maxmemory`: from the one on nothing more is taken to wait in sessions that last, retained or delayed, until
it uses less than the other."""
REDIS_RESERVED_PART: Final = 0.85
"""From here on Redis' memory is the log's: homes hold what is under way to their sessions."""
REDIS_STREAMS_PARTS: Final = 32
REDIS_STREAM_MIN_BYTES: Final = 1024 * 1024
"""A shard of the log, or a stream of events, takes one part of so many of Redis' memory at most, or this."""

# --- rlog: the replicated log ---------------------------------------------------------------------------------------
MAX_ROUTES: Final = 10_000_000
MAX_RETAINED_BYTES: Final = 1024 * 1024 * 1024
LOG_TABLE_MAX_ROWS: Final = 10_000_000
LOG_TABLE_MAX_BYTES: Final = 1024 * 1024 * 1024
LOG_TRANSACTION_MAX_BYTES: Final = 256 * 1024
"""Ops of one turn beyond it go into the next transaction; a single op may be as large as a packet."""
LOG_APPEND_MAX_BYTES: Final = 1024 * 1024
LOG_APPEND_MAX_TRANSACTIONS: Final = 1000
"""One append, that is one entry, takes no more; what is left goes into the next."""
LOG_PENDING_MAX_BYTES: Final = 32 * 1024 * 1024
"""Writes of this node, in one shard, that its own tables haven't reached."""
LOG_COMMIT_QUEUE_MAX_BYTES: Final = 64 * 1024 * 1024
"""Appends, from all nodes, that wait in one core."""
LOG_WRITE_DEADLINE_S: Final = 10.0
LOG_READ_MAX_ENTRIES: Final = 64
LOG_READ_BLOCK_S: Final = 1.0
LOG_REPLY_MAX_S: Final = 5.0
LOG_RETRY_MIN_S: Final = 0.02
LOG_RETRY_MAX_S: Final = 1.0
LOG_WATCH_EVERY_S: Final = 1.0
LOG_CLOSED_LOOK_S: Final = 0.05
"""How often a node looks whether a log that it can't go on with yet has been agreed upon."""
LOG_CLOSED_MAX_S: Final = 2.0
"""A server whose log is no such one for so long may have been replaced, and not know it."""
BALLOT_WAIT_S: Final = 1.0
"""How long a core may take to report where its tables are."""
BALLOT_TURN_S: Final = 0.25
"""Cores that could begin the next generation leave one another so much time for it."""
BALLOT_PATIENCE_S: Final = 1.0
"""How long a core waits for a generation that it promised to another."""
LOG_UNHEARD_MAX_S: Final = 2.0
"""A node that heard nothing from Redis for so long says so. Such a core gives nobody its tables: the log may have gone
on without it."""
LOG_BEHIND_REDIS_MAX_S: Final = 10.0
"""A log that ends before what a node applied, for so long, is another log: the node bootstraps."""
LOG_TURN_MAX_S: Final = 0.005
"""Applying, sweeping and exporting give the loop back after so long."""
LOG_SLICE_MAX_BYTES: Final = 64 * 1024
LOG_CHECKPOINT_EVERY_S: Final = 30.0
LOG_CHECKPOINTS_MAX: Final = 8
"""Whose digests a node remembers, to hold them against what cores say a moment later."""
LOG_MEND_SPREAD_S: Final = 10.0
"""Nodes whose digests are wrong bootstrap at a random time within it, not all at once."""
ALARMS_MAX: Final = 1000
LOG_KEPT_MAX_BYTES: Final = 32 * 1024 * 1024
"""Writes of this node, in one shard, kept until a majority of the cores has them; beyond it the oldest are let go."""
LOG_PURGED_MAX_INCARNATIONS: Final = 10_000
LOG_RETENTION_BYTES: Final = 64 * 1024 * 1024
"""What trimming leaves of a shard's log below the snapshots, so that a node that was away needs no bootstrap."""
SNAPSHOT_EVERY_S: Final = 60.0
SNAPSHOT_FRAME_MAX_BYTES: Final = 64 * 1024 * 1024
REDIS_CONNECT_MAX_S: Final = 2.0
SENTINELS_WORD_MAX_S: Final = 0.5
"""Whom Sentinels named as the primary that long ago is asked for again."""

# --- shared, exclusive and delayed ----------------------------------------------------------------------------------
SHARED_TURNS_MAX: Final = 65_536
"""Publishers, for each group, whose turn or sticky member is known; the oldest start anew."""
SHARED_DEALS_MAX: Final = 64
"""Of so many groups it is kept to whom a QoS 2 message goes; of more it may be dealt out anew when it comes again."""
SHARED_COUNTS_S: Final = 0.1
"""How many members a group has here is written at most so often."""
SHARED_RETRY_S: Final = 1.0
SHARED_HOPS_MAX: Final = 16
"""How often a shared delivery is passed on to another node, or slot, that had members when it was last heard of."""
EXCLUSIVE_MAX: Final = 1_000_000
DELAYED_MAX_MESSAGES: Final = 1_000_000
DELAYED_MAX_BYTES: Final = 256 * 1024 * 1024
DELAYED_MAX_S: Final = 4_294_967
DELAYED_BATCH_MAX: Final = 256
"""Messages that are due and under way at once."""
DELAYED_LOOK_S: Final = 0.5
"""How often a core looks whether it leads; what couldn't be published is tried again no sooner."""

# --- mqtt: what one packet may hold ---------------------------------------------------------------------------------
PACKET_MAX_BYTES: Final = 16 * 1024 * 1024
"""The highest `max_packet_size_bytes`: half a link's frame, so that every message can be forwarded."""
TOPIC_MAX_LEVELS: Final = 128
PACKET_MAX_FILTERS: Final = 4096
"""Topic filters in one SUBSCRIBE or UNSUBSCRIBE."""
PACKET_MAX_USER_PROPERTIES: Final = 1024

# --- routing: filters, the match cache, retained messages -----------------------------------------------------------
FAST_SHAPES_MAX: Final = 16
"""Different places where wildcards stand that an index looks a topic up in; a match that isn't cached costs one lookup
for each. Filters of all other shapes stand in a tree."""
FAST_SHAPE_FILTERS: Final = 64
"""So many filters a shape needs to be looked up in, where there are more shapes."""
SHAPE_MOVES: Final = 16
"""Filters that go into the tree with each new one, from a shape that others outgrew."""
MATCH_CACHE_MAX_TOPICS: Final = 65_536
MATCH_CACHE_ADMITS_EVERY: Final = 16
"""Once full, the cache remembers one new topic of so many: more topics in turn than fit don't push one another out."""
MATCH_CACHE_MAX_TOPIC_BYTES: Final = 512
"""Longer topics are matched each time."""
MATCH_CACHE_MAX_TARGETS: Final = 4 * 1024 * 1024
"""References in all cached results together, 8 bytes each."""
RETAINED_SLICE_MAX_TOPICS: Final = 2048
"""Retained topics looked at between two turns of the event loop."""

# --- session: what waits for a client or comes from one -------------------------------------------------------------
CLIENT_FILTERS_MAX_BYTES: Final = 16 * 1024 * 1024
"""Of one client's subscriptions, besides `mqtt.max_subscriptions`: filters are in the memory of all nodes."""
HEADS_MAX: Final = 262_144
"""Packet heads that are recognised without a parse, for each protocol version; a full table starts anew."""
HEADS_PER_TOPIC_MAX: Final = 16
FANOUTS_MAX: Final = 65_536
"""Different sets of subscribers that are kept to be shared by topics."""
FANOUTS_MAX_TARGETS: Final = 1024 * 1024
"""References to subscribers in them together."""
MQUEUE_MAX_BYTES: Final = 16 * 1024 * 1024
"""Messages that wait for a place in one client's window; `max_mqueue_len` bounds their number."""
MQUEUE_AHEAD_MAX: Final = 10_000
"""Messages beyond that number, of a session that lasts, while its client reads and publishers are paused for it."""
OUTGOING_ALIASES_MAX: Final = 32
"""Topic aliases that we use towards one client, however many it allows."""
ALLOWED_HEADS_MAX: Final = 1024
"""Packet heads that one client is known to be allowed to publish; a full set starts anew."""
NUMBERS_RESERVED: Final = 4096
"""Sequences and numbers that a session may use before its journal says so again; a crash skips at most so many."""
AWAY_SESSIONS_MAX: Final = 1_000_000
"""Sessions of one node whose clients are away; beyond it the one that would expire first ends."""
SESSIONS_EXPIRED_PER_TICK_MAX: Final = 256
INBOUND_LINE_MAX: Final = 1024
"""Messages of one client that wait for the log or for other nodes; then it is not read until half of them are done."""
INBOUND_LINE_MAX_BYTES: Final = 4 * 1024 * 1024
HELD_MAX_BYTES: Final = 64 * 1024 * 1024
"""Messages of all clients that wait for newer tables. From half of it on those of clients that left go, the oldest
first, and clients that wait aren't read; one that sends beyond it is cut off (0x97)."""
INBOUND_BYTES: Final = 512
"""What one of them counts for beside its packet."""
HELD_LINES_PER_TURN: Final = 8
"""Clients whose messages waited for newer tables and are matched between two turns of the event loop."""
SUBSCRIBES_WAITING_MAX: Final = 64
"""SUBSCRIBEs of one client that wait for the log; then it is not read until one of them is answered."""
ORIGINS_MAX: Final = 100_000
"""Sessions that publish at QoS 2, and last, whose last numbers a node knows; of others it takes a repeat for new."""
ORIGINS_WINDOW: Final = 4096
"""How many numbers of each are known one by one: so many may be on their way from a node that its client left."""
PARTIAL_CHUNKS_MAX: Final = 256
"""Reads that the beginning of one packet is kept as; then they are joined."""
PARTIALS_MAX_BYTES: Final = 512 * 1024 * 1024
"""Beginnings of packets of all clients; whoever is amid a packet of several reads when there is more is cut off. Less
where it is more than the next share of the memory."""
PARTIALS_MEMORY_SHARE: Final = 8
SINK_CONGESTED_BYTES: Final = 1024 * 1024
"""Bytes that wait for one client before its publishers are paused."""
SINK_DRAINED_BYTES: Final = 256 * 1024
SINK_LIMIT_BYTES: Final = 8 * 1024 * 1024
"""QoS 0 messages beyond it are dropped for that client and counted."""
SINK_CONGESTED_MAX_S: Final = 0.5
"""A client that reads nothing for so long holds its publishers no more: it lags."""
SINK_HELD_MAX_S: Final = 5.0
"""However steadily it reads, a client doesn't hold its publishers longer than that without draining once."""
GIVEN_UP_WAIT_MAX_S: Final = 1.0
"""What waits for a client behind a QoS 2 message that expired, until that is gone from Redis, is sent though it expires
meanwhile, for so long."""

# --- listeners: descriptors and turns -------------------------------------------------------------------------------
READ_MAX_BYTES: Final = 64 * 1024
"""One read of one connection."""
READ_MIN_BYTES: Final = 4 * 1024
"""So much is read at once, at least, from a client whose packets take long to process."""
READ_WORK_MAX_S: Final = 0.004
"""What was read at once and takes longer: the next read of that connection is half as large."""
WRITE_JOIN_MAX_BYTES: Final = 256 * 1024
"""More than that is written from its chunks, without joining them."""
WRITE_VECTOR_MAX: Final = 512
TURN_EVENTS_MAX: Final = 512
TURN_ROUNDS_MAX: Final = 16
TURN_WORK_MAX_S: Final = 0.02
"""Who has a turn that took so long is the last: the others wait for the next one."""
SPIN_MAX_S: Final = 0.00005
"""How long a turn that found little waits awake for what comes next, where that came so soon lately."""
ACCEPTS_PER_TURN_MAX: Final = 64
LISTEN_BACKLOG_MAX: Final = 4096
SWEEP_INTERVAL_S: Final = 0.1
STOOD_STILL_S: Final = 3 * SWEEP_INTERVAL_S
"""A node that didn't sweep for so long stood still: whether its tables are old is asked before what came is read."""
SWEEP_TICKS: Final = 10
"""Keep-alive is checked for a tenth of the connections a tick."""
LAGGING_MAX_S: Final = 30.0
"""A client that lags and reads nothing for so long is cut off (0x97)."""
DISCARD_MAX_BYTES: Final = 256 * 1024
"""What is thrown away at once of what a client sends that was cut off."""
LINGER_MAX_S: Final = 1.0
"""How long a client that was cut off may take to read why."""
PROXY_HEADER_MAX_BYTES: Final = 4096
TLS_HELLO_MAX_BYTES: Final = 5 + 16 * 1024
"""One record: what is kept of a client before anything of TLS is made for it."""
TLS_HANDSHAKE_BYTES: Final = 45 * 1024
TLS_SESSION_BYTES: Final = 20 * 1024
"""What a client costs amid its handshake, and behind it, until it is let in."""
UNAUTHENTICATED_MAX_BYTES: Final = 24 * 1024 * 1024
"""What all clients that aren't let in yet may cost; less where it is more than the next share of the memory."""
UNAUTHENTICATED_MEMORY_SHARE: Final = 16
UNAUTHENTICATED_COUNTED_BYTES: Final = 512
"""Who costs less isn't counted: its connection itself costs more."""
UNAUTHENTICATED_READ_BYTES: Final = 64
"""What one read of theirs counts for beside its bytes."""
UNAUTHENTICATED_READ_MAX_BYTES: Final = 8 * 1024
"""One read of one of them."""
CONNECTION_BYTES: Final = 8 * 1024
"""What a connection takes, the kernel's part included: one address may have half of what the memory has room for."""
TLS_GREETINGS_PER_TURN_MAX: Final = 8
"""ClientHellos answered before other clients have their turn; each takes about a millisecond."""
TLS_REFRESH_S: Final = 5.0
"""How often the files of certificates are looked at."""
WS_HEAD_MAX_BYTES: Final = 8 * 1024
WS_FRAME_MAX_BYTES: Final = PACKET_MAX_BYTES
"""Of one frame, which is passed on as it comes; the zone's `max_packet_size` bounds what is kept."""
FILTER_SLICE_MAX_BYTES: Final = 256 * 1024
"""What one connection encrypts and frames at a time; the rest waits until that is written."""
FILTER_ANSWERS_MAX_BYTES: Final = 64 * 1024
"""What TLS and WebSocket may answer a client that reads nothing, before it is cut off."""
THROTTLE_TICK_S: Final = 0.01
"""How often clients over a rate are looked at."""
THROTTLE_CHECK_S: Final = 1.0
"""However long a client must wait, it is looked at again after so long, so that a closed one isn't kept."""

# --- auth: who may connect, and do what -----------------------------------------------------------------------------
USERS_MAX: Final = 1_000_000
RULED_MAX: Final = 1_000_000
"""Users, client ids and "all" that have rules in the log."""
RULES_OF_ONE_MAX: Final = 1000
RULES_MAX_BYTES: Final = 64 * 1024
"""The rules of one user or client id in the log, or in a token or an answer of another service."""
BANS_MAX: Final = 1_000_000
BAN_PATTERNS_MAX: Final = 1000
"""Bans by pattern, each of which every CONNECT is held against."""
HASH_THREADS_MAX: Final = 2
HASHES_WAITING_MAX: Final = 256
"""Passwords that wait to be hashed; then the address with the most of them waiting is told to come later (0x89)."""
HASH_GONE_MAX: Final = 1000
"""Clients that are gone and would have shared one hash, kept before it is done, beside as many as wait for it."""
HASH_SLICE_LOGINS: Final = 50
"""Logins that shared a hash, and go on in one turn of the loop."""
ARGON2_MAX_KIB: Final = 262_144
"""What one hash may cost, and so one link of the chain for one CONNECT; in a thread, whatever it costs."""
ARGON2_MAX_PASSES: Final = 16
BCRYPT_MAX_ROUNDS: Final = 14
PBKDF2_MAX_ITERATIONS: Final = 10_000_000
SCRAM_NAME_MAX_CHARACTERS: Final = 256
"""A user name as it is said, and as SASLprep makes it, which takes up to 2 µs a character on the event loop."""
SCRAM_NONCE_MAX_CHARACTERS: Final = 256
VERIFIED_MAX: Final = 100_000
"""Passwords that were found right, kept as a keyed sum: a client that comes back costs no hash."""
FAILED_LOGINS_MAX: Final = 100_000
"""Names and addresses of failed logins that a node remembers; more push out who failed longest ago."""
FAILED_LOGINS_KEPT_S: Final = 900.0
"""Who failed no more for so long begins anew."""
FAILED_LOGINS_OF_ADDRESS_MAX: Final = 100
"""So many failures at one address, and each name there waits from its first failure on."""
LOGINS_OF_NAME_MAX: Final = 64
"""Passwords of one name at one address that wait for a hash or another service; with one more, who says it is told to
come later (0x9F)."""
KNOWN_CLIENTS_MAX: Final = 100_000
"""Clients that were let in, whose failed logins are counted on their own; more push out who was let in longest ago."""
PASSWORD_MAX_BYTES: Final = 4096
JWT_MAX_BYTES: Final = 8192
JWT_SKEW_MAX_S: Final = 5
"""How far an issuer's clock may be ahead of ours."""
EXPIRES_MAX_S: Final = 253_402_300_800.0
"""The year 10,000, since the epoch: when a service, or a token, says that a connection ends later, it is no time, but
milliseconds, say."""
JWKS_MAX_BYTES: Final = 256 * 1024
JWKS_RETRY_S: Final = 5.0
"""An unknown key, or a key set that couldn't be had, is asked for no sooner again."""
REFUSALS_LOGGED_PER_S: Final = 10
"""Lines of the log, of each kind of refusal: clients can bring them about as often as they like."""
ASKED_MAX: Final = 1000
"""Questions to one service that are under way or wait for a connection; then who connects is told to come later (0x89),
and what is asked for clients that are connected waits."""
ASKED_OF_CONNECTION_MAX: Final = 32
"""Of them, what one connection may publish or subscribe to; others of its own wait."""
ASKING_OF_GONE_MAX: Final = ASKED_MAX
"""Questions of connections that are gone, all together, that wait: beyond them, what they asked for is refused."""
ASKING_OF_CONNECTION_MAX: Final = 2 * INBOUND_LINE_MAX
"""Questions of one connection that wait; beyond them, what it asks for is refused (0x83)."""
ANSWER_MAX_BYTES: Final = 64 * 1024
AUTH_EXCHANGE_MAX_BYTES: Final = 4096
"""Authentication data of one step of an enhanced authentication."""
AUTHORIZATIONS_MAX_TOPIC_BYTES: Final = 1024
"""Answers about longer topics are not kept."""
RULES_COMPILED_MAX: Final = 10_000
"""Clients whose rules are kept compiled; those that are not come from the log again."""
FLAPPING_MAX_CLIENTS: Final = 100_000
"""Clients whose disconnects are counted; more push out the one that was quiet for the longest."""
KICK_SLICE_CLIENTS: Final = 1000
"""Clients that are held against a new ban between two turns of the event loop."""
BOOTSTRAP_MAX_BYTES: Final = 64 * 1024 * 1024
BOOTSTRAP_BATCH_USERS: Final = 500
AUTH_HOUSEKEEPING_S: Final = 5.0
"""How often the leader looks for users to take in and for bans that ran out."""
AUTH_PAGE_MAX: Final = 1000
AUTH_REQUEST_MAX_BYTES: Final = 128 * 1024

# --- quotas: what one user may have in the whole cluster (less where it is much of Redis' memory) ---------------------
QUOTA_SESSIONS: Final = AWAY_SESSIONS_MAX // 2
QUOTA_QUEUED_BYTES: Final = 16 * 1024 * 1024 * 1024
QUOTA_SUBSCRIPTIONS: Final = MAX_ROUTES // 4
QUOTA_SUBSCRIPTION_BYTES: Final = 256 * 1024 * 1024
QUOTA_RETAINED_BYTES: Final = MAX_RETAINED_BYTES // 4
"""What a user may have who isn't given another quota."""
QUOTA_AWAY_PERCENT: Final = 75
"""Of the quota of queued bytes, for sessions whose clients are away; the rest is for those that are connected."""
QUEUED_MESSAGE_BYTES: Final = 128
"""What a message that waits counts for beside its packet."""
RETAINED_MESSAGE_BYTES: Final = 256
"""The same of a retained message, or of a topic that was cleared lately."""
SESSION_STORED_BYTES: Final = 512
"""What a session takes in Redis, about, beside its messages and subscriptions."""
QUOTA_TOLD_EVERY_S: Final = 1.0
QUOTA_TOLD_PARTS: Final = 100
"""A node tells others of users who have one of so many parts of a quota there, or more."""
QUOTA_SHARES: Final = 64
"""A user gets one of so many parts of a quota at a node before others are told: soon, once it has half of that."""
QUOTA_TOLD_SOON_S: Final = 0.05
"""So long lies between two times that others are told soon."""
QUOTA_RETAINED_SHOWN_BYTES: Final = 64 * 1024
"""Users who have less retained, and less than a part of their quota, aren't looked at."""
QUOTA_USERS_TOLD_MAX: Final = 100
"""Users of whom a node tells others, those who have most."""
QUOTA_SLICE_USERS: Final = 1000
"""Users who are looked at between two turns of the event loop, when quotas changed."""
QUOTA_SHRINKS_AFTER_S: Final = 60.0
"""A smaller `maxmemory` of Redis makes quotas smaller when it has stood for so long; so does the first that is seen."""
QUOTA_ALARMS_MAX: Final = 16
"""Users who are over a quota, for each of whom an alarm stands."""

# --- node -----------------------------------------------------------------------------------------------------------
LAG_SAMPLE_INTERVAL_S: Final = 10.0
AUTHORIZATION_SLICE_CLIENTS: Final = 2000
"""Clients that are asked about again between two turns of the event loop, when the rules changed."""
JUDGING_SLICE_RULES: Final = 2000
"""Rules that are looked at between two turns of the event loop for what clients ask, and as many for what they are
subscribed to, when the rules changed."""
JUDGING_SHARE_RULES: Final = 200
"""Of them, for one of those that wait for a later turn."""
JUDGEMENT_RULES: Final = 10
"""What a judgement counts for beside the rules that it looks at."""
STANDING_SLICE_CLIENTS: Final = 2000
"""Clients that are gone through meanwhile which the change isn't about."""
STANDING_AT_ONCE: Final = 64
"""Clients whose subscriptions are judged at the same time."""
STANDING_WAIT_S: Final = 1.0
"""So long a client's home, or a service, holds up the others."""
STANDING_AGAIN_S: Final = 0.5
STANDING_AGAIN_MAX: Final = 20
"""Who has a SUBSCRIBE under way is judged again, after so long, and so often at most."""
STANDING_READS_MAX: Final = 5
"""How often a session's subscriptions are read anew because its client changed them meanwhile."""
STANDING_PAGE_BYTES: Final = 32 * 1024
"""Of a session's subscriptions go so many at a time from its home to the node that judges them, or one."""
STANDING_ROW_BYTES: Final = 8
STANDING_LOGGED_PER_S: Final = 10
SESSIONS_TICK_S: Final = 0.25
"""How often wills that are due and sessions that expired are looked for."""
RETAINED_FEED_TOPICS: Final = 512
"""Retained topics looked at, for one new subscription, between two turns of the event loop."""
OFFERED_MAX_BYTES: Final = 64 * 1024 * 1024
"""Wills and other messages that no connection waits for, which found no room and are tried again; more are lost."""
OFFERED_BYTES: Final = 512
"""What one counts for beside its packet."""
OFFERED_TOGETHER_MAX: Final = 64
"""Those that are tried again between two turns of the event loop."""
OFFER_RETRY_MIN_S: Final = 0.05
OFFER_RETRY_MAX_S: Final = 5.0
WILLS_MAX_S: Final = 2.0
"""How long a node that stops waits until its clients' wills are on their way."""
RETAINED_BACK_S: Final = 2.0
"""How often a client that went away amid its retained messages is looked for, and a log that didn't answer is asked."""
RETAINED_CLEARED_KEPT_S: Final = 300.0
"""How long the log has that a topic was cleared, and by whom: so late nothing older of its client comes any more."""
RETAINED_SEEN_MAX_S: Final = 2.0
"""How long a SUBACK waits for the log to say what is retained."""
RETAINED_EXPIRED_LOOK_S: Final = 10.0
RETAINED_EXPIRED_MAX: Final = 100_000
"""Retained messages that expired, found by one look."""
RETAINED_EXPIRED_SLICE: Final = 1000
"""Those taken out of the log at a time."""
RETAINED_LIVE_MAX_TOPICS: Final = 100_000
"""Topics that changed while subscriptions are given what is retained."""

# --- plugins, topic rewrite -----------------------------------------------------------------------------------------
PLUGIN_CALL_MAX_S: Final = 0.005
"""A handler that takes longer has failed: nobody else is served meanwhile."""
PLUGIN_FAILURES_MAX: Final = 10
"""So many failures of one plugin within the window, and it is fenced off."""
PLUGIN_FAILURES_WINDOW_S: Final = 60.0
PLUGIN_FILTERS_MAX: Final = 256
"""Topic filters of one handler of message.publish."""
REWRITE_RULES_MAX: Final = 1024
AUTO_SUBSCRIPTIONS_MAX: Final = 64

# --- logs -----------------------------------------------------------------------------------------------------------
LOGGED_MAX_CHARACTERS: Final = 128
"""Of a client id, a user name, a topic in a line of the log."""
LOG_LINE_MAX_CHARACTERS: Final = 2048
"""Of a message, its traceback apart."""
LOG_LINES_PER_S: Final = 50
"""Of one kind."""
LOG_KINDS_COUNTED_S: Final = 1.0
"""Lines are counted for so long; then the log has how many more of a kind there were than it shows."""

# --- telemetry ------------------------------------------------------------------------------------------------------
LOOP_WATCH_INTERVAL_S: Final = 0.1
LOOP_WATCH_WINDOW_S: Final = 60.0
"""The worst pause of the event loop is shown for so long: a common interval of scrapes."""

# --- $SYS -----------------------------------------------------------------------------------------------------------
SYSTEM_VALUES_MAX_S: Final = 1.0
"""What a new subscriber is told of its node may be so old."""
