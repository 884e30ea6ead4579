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
"""How many headers a request may have, each of them up to MANAGEMENT_HEADER_MAX_BYTES."""
MANAGEMENT_CONNECTIONS_MAX: Final = 256
"""A further connection ends the one that was accepted, or answered, the longest ago."""
MANAGEMENT_REQUEST_MAX_S: Final = 10.0
"""How long a connection may take to say its first request, its TLS handshake included; and then for a body."""
MANAGEMENT_ANSWER_MAX_S: Final = 10.0
"""How long a client may take to read its answer, except for what its socket holds."""
MANAGEMENT_UNWANTED_MAX_BYTES: Final = 512 * 1024
"""How much may come behind an answer that begins no other request, such as the rest of a body that nobody reads. With
more the connection ends. A whole request is smaller."""
MANAGEMENT_UNWANTED_MAX_S: Final = 1.0
"""How long an answered client may go on to send it. One that takes longer has read the answer."""
MANAGEMENT_ACCEPT_AGAIN_S: Final = 0.1
"""How long no connection is accepted after there was no descriptor for one."""
MANAGEMENT_KEEP_ALIVE_MAX_SECONDS: Final = 60
METRICS_MADE_EVERY_S: Final = 0.1
"""The text of /metrics is made at most so often, for all that ask meanwhile."""
LINK_KEY_MIN_BYTES: Final = 16
LINK_KEYS_MAX: Final = 2
"""Two while the cluster's key is replaced."""
API_KEY_MIN_BYTES: Final = 32
"""A configured key has at least so many; the server draws as many for keys that it makes."""
API_KEYS_MAX: Final = 1000
SECRETS_MAX: Final = 16
"""Secrets of the cluster itself, in its log."""
AUDIT_MAX: Final = 10_000
"""Changes that the audit log keeps; the oldest go."""
AUDIT_ABOUT_MAX_CHARS: Final = 256
AUDIT_DROPPED_TOGETHER_MAX: Final = 100
"""How many old changes go together, when a new one comes."""
API_FAILURES_MAX_ADDRESSES: Final = 10_000
"""Addresses whose wrong keys are counted; more push out the one that was quiet for the longest."""
API_FAILURES_FORGOTTEN_S: Final = 60.0
"""After so long without one, an address starts anew."""
API_FAILURE_MIN_S: Final = 0.1
API_FAILURE_MAX_S: Final = 5.0
"""How long the answer to a wrong key takes: twice as long each time."""
API_FAILURES_WAITING_MAX: Final = 64
"""How many answers to wrong keys wait. Further wrong keys hear at once that there are too many."""

# --- cluster: links, forwarding, membership -------------------------------------------------------------------------
LINK_GREETING_MAX_BYTES: Final = 512
LINK_HANDSHAKE_MAX_S: Final = 3.0
LINK_HANDSHAKES_MAX: Final = 256
"""Accepted connections that aren't authenticated yet; a further one closes the oldest."""
LINK_FRAME_MAX_BYTES: Final = 32 * 1024 * 1024
LINK_FORWARD_FRAME_BYTES: Final = 256 * 1024
"""Runs of messages are cut into frames of about this size, so that control frames can overtake them."""
LINK_TRANSPORT_HIGH_BYTES: Final = 256 * 1024
"""How much is handed to the transport at once: nothing can overtake it any more."""
LINK_CONTROL_MAX_BYTES: Final = 64 * 1024 * 1024
"""A peer that leaves this much control unread is closed."""
LINK_CONTROL_CHOKED_BYTES: Final = 16 * 1024 * 1024
"""Beyond it notes of homes wait. The largest note still fits in before the link is closed."""
LINK_REQUESTS_MAX: Final = 4096
LINK_STREAMS_MAX: Final = 64
LINK_STREAM_CREDIT_ITEMS: Final = 8
LINK_HEARTBEAT_S: Final = 0.5
LINK_LOOK_S: Final = 0.1
"""How often a node looks for news that can't wait for its next heartbeat."""
LINK_SILENT_MAX_S: Final = 3.0
LINK_UNANSWERED_MAX_S: Final = 5.0
"""How long a heartbeat and its answer may take through a full link. After that only one way of the link is open."""
LINK_LEAVE_MAX_S: Final = 1.0
"""How long a node that stops waits until its peers have read everything and close: first for its tunnels, then as long
again for the links that may have carried them."""
FORWARDED_MAX_S: Final = 10.0
"""How long a node that stops waits for nodes and homes that it has messages for: until a link is back, or they are
purged."""
FORWARDED_LOOK_S: Final = 0.05
LINK_REDIAL_MIN_S: Final = 0.1
LINK_REDIAL_MAX_S: Final = 2.0
RETRIED_QUIETLY_MAX_S: Final = 10.0
"""For so long the log doesn't warn of failures that are tried again, because other nodes may not be there yet."""
EMBEDDED_RETRY_MIN_S: Final = 0.05
EMBEDDED_RETRY_MAX_S: Final = 5.0
"""How long to wait before an embedded Valkey that ended is started again: twice as long each time."""
EMBEDDED_STEADY_S: Final = 2.0
"""A Valkey that ends again within so long hasn't come back. Shorter than UNFIT_AFTER_S, so that a node stays ready when
its Valkey does come back at once."""
EMBEDDED_ROOM_MIN_BYTES: Final = 1024 * 1024
"""If less is left on its disk when it ends, the node says that the disk is full."""
TASK_AGAIN_S: Final = 1.0
"""How long after an error a task begins again."""
SEED_RESOLVE_S: Final = 2.0
SEED_ADDRESSES_MAX: Final = 64
PEER_FORWARD_MAX_BYTES: Final = 32 * 1024 * 1024
"""QoS 0 messages that wait for one node; further ones are dropped and counted."""
PEER_RESEND_MAX_BYTES: Final = 32 * 1024 * 1024
PEER_RESEND_MAX_MESSAGES: Final = 100_000
"""QoS >= 1 messages that one node hasn't accepted; publishers of further ones hear 0x97."""
PEER_BLOCKED_BYTES: Final = 4 * 1024 * 1024
PEER_DRAINED_BYTES: Final = 1 * 1024 * 1024
PEER_IDLE_S: Final = 60.0
"""A link between two replicants that carried no message for so long is closed."""
TUNNEL_WINDOW_BYTES: Final = 256 * 1024
"""How much one tunnel through a core has under way in one direction, wherever it waits."""
TUNNEL_FRAME_BYTES: Final = 64 * 1024
TUNNELS_MAX: Final = 1024
"""How many tunnels go through one link. A core holds at most TUNNEL_WINDOW_BYTES for each."""
TUNNEL_AFTER_S: Final = 2.0
"""A node that couldn't be dialled for so long is reached through a core until it can be dialled."""
PEERS_FORMER_MAX: Final = 1024
"""How many purged nodes are remembered, with their last numbers, because they may come back."""
REJOIN_SLICE_FILTERS: Final = 1000
"""How many routes a node that comes back writes at a time, and how many clients it looks at between two turns."""
ROUTES_TRIED_AGAIN_MAX: Final = 100_000
"""How many routes of a node, or slot, that couldn't be deleted while the log was away are deleted at a time."""
FORWARD_WAIT_S: Final = 0.2
COURIER_LANE_MAX_BYTES: Final = 32 * 1024 * 1024
COURIER_LANE_MAX_MESSAGES: Final = 100_000
"""QoS >= 1 messages for sessions of one core that it hasn't accepted; publishers of further ones hear 0x97. From half
of it on publishers are paused.
"""
COURIER_WINDOW_BYTES: Final = 4 * 1024 * 1024
"""How much of that is under way at once; the rest waits at the sender."""
COURIER_STUCK_BYTES: Final = 1024 * 1024
"""How much of that may be for slots whose home can't commit it, before publishers to these slots are paused."""
COURIER_STUCK_MAX_BYTES: Final = 8 * 1024 * 1024
"""How much of that doesn't count for the window: paused publishers may have sent as much before."""
TAKEN_APART_AFTER_S: Final = 0.1
"""A message that isn't committed for so long is stuck: committed ones behind it are accepted without it."""
CROWDED_KEPT_S: Final = 1.0
"""For so long a slot counts as congested after its home said so; the home says so four times as often."""
TAKERS_KEPT_S: Final = 2.0
"""While Redis is short of memory: for so long a node believes a home's word on which sessions take messages at once."""
TAKERS_LOOKED_AT_MAX: Final = 2_000
"""How many sessions a home looks at for this every 0.1 s. It says of slots that it didn't get to that all would
wait."""
TAKERS_FILTERS_MAX: Final = 64
TAKERS_FILTERS_MAX_BYTES: Final = 4 * 1024
"""How many filters a home names of a slot's sessions for which messages would wait; if there are more, all would."""
COURIER_LOOK_S: Final = 0.02
"""How often a congested lane, and messages that wait for the log, are looked at."""
HEADS_NOTES_MAX: Final = 64
"""How many notes of cores are kept that a node's tables haven't reached. The oldest go first: they tell of less."""
HEADS_CORES_MAX: Final = 64
"""Cores whose clocks a node compares with its own."""
HEADS_QUICKEST_S: Final = 10.0
"""The quickest note of a core counts for so long, and at most for twice as long."""
CLOCKS_AGREE_S: Final = 2.0
"""Clocks that differ by no more agree. A heartbeat may be so late, too."""
CLOCK_JUMP_AFTER_S: Final = 5.0
"""For so long most cores must say that the cluster's time is wrong before it is set."""
CLOCK_SLEW_S: Final = 0.005
"""By how much, each second, the cluster's time follows the clocks that agree."""
CLOCK_OFF_MAX_S: Final = 2.0
"""A node whose clock differs by more from the cluster's time raises an alarm."""
MEMBER_UNLINKED_MAX_S: Final = 1.0
MEMBER_VOTE_MAX_S: Final = 2.0
"""What a core said longer ago is no vote any more, and doesn't count for a majority."""
MEMBER_FENCE_S: Final = 1.0
"""A node that hears of no majority for so long acknowledges nothing that needs other nodes. A majority may purge it
only after that."""
SLOTS_UNSERVED_MAX_S: Final = 5.0
"""A core that hears nothing from Redis for so long, while the leader does, loses its slots. It gets some again when it
has heard Redis for as long."""
SLOTS_WRITTEN_ANEW_S: Final = 10.0
"""When Redis lost data, homes write it again. For so long no slot leaves a home that can."""
UNFIT_AFTER_S: Final = 5.0
"""A node isn't ready when its tables were old for so long, or it didn't hear Redis while another node did."""
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
"""Clients or sessions of one core that are looked at for a page. With a filter it may have fewer rows."""
DIRECTORY_PAGE_MAX_BYTES: Final = 1024 * 1024
"""Client ids and filters of one page; the last of them may exceed it."""
DIRECTORY_NAME_MAX_CHARS: Final = 1024
"""How much of a user name is shown."""
MOVE_EVERY_S: Final = 5.0
"""How often, at most, a replicant of a core moves to another core."""
MOVE_DIFFERENCE: Final = 2
"""If one core has so many more replicants than another, some move."""
MEMBER_UNHEARD_MAX_S: Final = 6.0
EVENTS_MAX: Final = 20_000
EVENTS_FLUSH_S: Final = 1.0
EVENTS_ENTRY_MAX: Final = 1000
EVENTS_NOTES_MAX: Final = 1000
EVENTS_STREAM_MAX_BYTES: Final = 64 * 1024 * 1024
EVENTS_LOOK_BYTES: Final = 8 * 1024 * 1024
"""How much a core appends to a stream before it looks again how large the stream is."""

# --- home: who holds a client id ------------------------------------------------------------------------------------
SLOTS: Final = 1024
ATTACH_WAIT_S: Final = 6.0
KICK_WAIT_S: Final = 5.0
KICK_UNLINKED_S: Final = 0.25
ATTACHES_MAX: Final = 100_000
ATTACHES_MAX_BYTES: Final = 64 * 1024 * 1024
"""Client ids, with their wills, whose homes haven't answered yet. A CONNECT beyond it hears 0x88."""
HOME_WILLS_MAX: Final = 1_000_000
HOME_WILLS_MAX_BYTES: Final = 256 * 1024 * 1024
"""Wills of sessions that end with their nodes, kept by a home. A will beyond it is lost if its node dies."""
HOME_BATCH_MAX: Final = 4096
HOME_OUT_MAX: Final = 100_000
"""Answers, and as many kicks, that wait for one node without a link. Further ones are dropped: when the node is linked
it asks again, and registers its clients."""
REGISTERS_EARLY_MAX: Final = 100_000
"""What nodes said of slots whose sessions aren't here yet. If there is more, nodes are asked again later."""
EARLY_KEPT_S: Final = 10.0
"""For so long a core keeps what nodes say of a slot that it hasn't heard to be its own."""
SLOT_LOST_MAX_S: Final = 5.0
"""A core takes a slot again that another core took, if its own table says for so long that the slot is its own."""
HOME_RETURN_S: Final = 5.0
"""How long a home that took over a session waits for its connection, before it takes its client for gone."""
RETURNING_MAX: Final = 100_000
RETURNING_MAX_BYTES: Final = 64 * 1024 * 1024
"""Clients that come back meanwhile to sessions with wills, and wait for news of their former connections."""
MARKS_KEPT_S: Final = 3600.0
"""For so long a purged node may come back, as another incarnation, and repeat what it sent before."""
MARKS_STRANGERS_MAX: Final = 256
"""How many such nodes are remembered; those that went first are forgotten first."""
HOME_TURN_MAX_S: Final = 0.005
"""Work on all sessions of a node, or of slots that move, gives the event loop back after so long."""
HOME_PACE_S: Final = 0.01
"""How often a link that takes no more notes is looked at."""
HOME_BEHIND_S: Final = 0.25
"""How long after their deliveries found no link, or no room, sessions send them again."""
INTAKE_SENDER_MAX_BYTES: Final = 64 * 1024 * 1024
"""Messages of one node that the home of sessions can't take yet. A sender that exceeds its window loses its link."""
MARKS_PER_SLOT_MAX: Final = 4096
"""How many sessions that publish at QoS 2 a slot knows the last number of. It takes repeats of others for new."""
STORE_STOP_MAX_S: Final = 2.0
"""How long a core that stops waits until its sessions are committed."""
DELIVERIES_MAX_BYTES: Final = 64 * 1024 * 1024
"""How much sessions that run here send to clients of another node before its link takes it; then they wait."""

# --- home: sessions that last, in Redis -----------------------------------------------------------------------------
STORE_QUEUE_MAX_BYTES: Final = 64 * 1024 * 1024
"""Changes of sessions that aren't committed yet. Beyond it no messages are taken in, only what ends some."""
STORE_CHANGE_BYTES: Final = 100
"""How much one change counts for, beside its bytes."""
STORE_BATCH_MAX_BYTES: Final = 1024 * 1024
"""How much one call of a function for one slot takes, up to the end of a message; the rest goes into the next call."""
STORE_LETTER_MAX_BYTES: Final = 16 * 1024 * 1024
"""All copies of a message at one slot, and its mark, go by one call, so that none comes twice when the home dies in
between. Copies beyond this may come twice."""
STORE_TURN_MAX_BYTES: Final = 4 * 1024 * 1024
"""Batches of all slots in one round trip."""
STORE_TAKE_SLOTS: Final = 64
"""How many slots are read together, when they are taken."""
STORE_SLOT_SMALL_BYTES: Final = 128 * 1024
"""Slots with less are read first, then those with up to eight times as much, and so on."""
STORE_READ_MAX_BYTES: Final = 16 * 1024 * 1024
"""How much a core reads of slots of one server before it takes it over. A larger slot is read by itself."""
STORE_READ_KEYS: Final = 128
STORE_READ_FIELDS: Final = 256
"""How many keys one round trip, and how many fields one reply, bring to a core that takes slots."""
STORE_READ_BYTES: Final = 2 * 1024 * 1024
"""How much one round trip should bring. What former ones brought says how many keys and fields to ask for."""
SLOT_SPOILT_RETRY_S: Final = 5.0
"""How often to try a slot again if something of it can't be read in Redis."""
STORE_WATCH_EVERY_S: Final = 1.0
REDIS_SHORT_PART: Final = 0.75
REDIS_ROOM_PART: Final = 0.70
"""Parts of its `maxmemory`. From REDIS_SHORT_PART on, nothing more is taken that would wait in sessions that last, be
retained or be delayed, until Redis uses less than REDIS_ROOM_PART."""
REDIS_RESERVED_PART: Final = 0.85
"""From here on Redis' memory is the log's. Homes hold back what is under way to their sessions."""
REDIS_STREAMS_PARTS: Final = 32
REDIS_STREAM_MIN_BYTES: Final = 1024 * 1024
"""How much of Redis' memory a shard of the log, or a stream of events, takes: one part of so many, at least this."""

# --- rlog: the replicated log ---------------------------------------------------------------------------------------
MAX_ROUTES: Final = 10_000_000
MAX_RETAINED_BYTES: Final = 1024 * 1024 * 1024
LOG_TABLE_MAX_ROWS: Final = 10_000_000
LOG_TABLE_MAX_BYTES: Final = 1024 * 1024 * 1024
LOG_TRANSACTION_MAX_BYTES: Final = 256 * 1024
"""Ops of one turn beyond it go into the next transaction. A single op may be as large as a packet."""
LOG_APPEND_MAX_BYTES: Final = 1024 * 1024
LOG_APPEND_MAX_TRANSACTIONS: Final = 1000
"""How much one append takes, which is one entry; the rest goes into the next."""
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
"""How often a node looks whether the cores have agreed on a log that it can't go on with yet."""
LOG_CLOSED_MAX_S: Final = 2.0
"""A server may have been replaced, and not know, if its log hasn't been agreed upon for so long."""
BALLOT_WAIT_S: Final = 1.0
"""How long a core may take to report where its tables are."""
BALLOT_TURN_S: Final = 0.25
"""How much time cores leave one another to begin the next generation."""
BALLOT_PATIENCE_S: Final = 1.0
"""How long a core waits for a generation that it promised to another."""
LOG_UNHEARD_MAX_S: Final = 2.0
"""A node that heard nothing from Redis for so long says so. Such a core gives nobody its tables, because the log may
have gone on without it."""
LOG_BEHIND_REDIS_MAX_S: Final = 10.0
"""If the log ends before what a node has applied, for so long, it is another log, and the node bootstraps."""
LOG_TURN_MAX_S: Final = 0.005
"""Applying, sweeping and exporting give the loop back after so long."""
LOG_SLICE_MAX_BYTES: Final = 64 * 1024
LOG_CHECKPOINT_EVERY_S: Final = 30.0
LOG_CHECKPOINTS_MAX: Final = 8
"""How many checkpoints' digests a node remembers, to compare them with what cores say a moment later."""
LOG_MEND_SPREAD_S: Final = 10.0
"""Nodes with wrong digests bootstrap at random times within it, not all at once."""
ALARMS_MAX: Final = 1000
LOG_KEPT_MAX_BYTES: Final = 32 * 1024 * 1024
"""Writes of this node, in one shard, kept until most cores have them. Beyond it the oldest are let go."""
LOG_PURGED_MAX_INCARNATIONS: Final = 10_000
LOG_RETENTION_BYTES: Final = 64 * 1024 * 1024
"""How much of a shard's log trimming leaves below the snapshots: so a node that was away needs no bootstrap."""
SNAPSHOT_EVERY_S: Final = 60.0
SNAPSHOT_FRAME_MAX_BYTES: Final = 64 * 1024 * 1024
REDIS_CONNECT_MAX_S: Final = 2.0
SENTINELS_WORD_MAX_S: Final = 0.5
"""Sentinels are asked again for the primary if their word is older."""

# --- shared, exclusive and delayed ----------------------------------------------------------------------------------
SHARED_TURNS_MAX: Final = 65_536
"""Publishers of each group whose turn or sticky member is remembered; the oldest begin again."""
SHARED_DEALS_MAX: Final = 64
"""For so many groups it is remembered to whom a QoS 2 message went. In others a repeat may go to another member."""
SHARED_COUNTS_S: Final = 0.1
"""How often, at most, the number of a group's members here is written."""
SHARED_RETRY_S: Final = 1.0
SHARED_HOPS_MAX: Final = 16
"""How often a shared delivery is passed on to another node, or slot, that had members when last heard of."""
EXCLUSIVE_MAX: Final = 1_000_000
DELAYED_MAX_MESSAGES: Final = 1_000_000
DELAYED_MAX_BYTES: Final = 256 * 1024 * 1024
DELAYED_MAX_S: Final = 4_294_967
DELAYED_BATCH_MAX: Final = 256
"""Messages that are due and under way at once."""
DELAYED_LOOK_S: Final = 0.5
"""How often a core looks whether it leads. What couldn't be published isn't tried again sooner."""

# --- mqtt: what one packet may hold ---------------------------------------------------------------------------------
PACKET_MAX_BYTES: Final = 16 * 1024 * 1024
"""The highest `max_packet_size_bytes`: half a link's frame, so that every message can be forwarded."""
TOPIC_MAX_LEVELS: Final = 128
PACKET_MAX_FILTERS: Final = 4096
"""Topic filters in one SUBSCRIBE or UNSUBSCRIBE."""
PACKET_MAX_USER_PROPERTIES: Final = 1024

# --- routing: filters, the match cache, retained messages -----------------------------------------------------------
FAST_SHAPES_MAX: Final = 16
"""For how many shapes, which are places where wildcards stand, an index looks a topic up: a match that isn't cached
costs one lookup for each. Filters of all other shapes are in a tree."""
FAST_SHAPE_FILTERS: Final = 64
"""How many filters a shape needs to be looked up in, if there are more shapes."""
SHAPE_MOVES: Final = 16
"""How many filters of a shape that others outgrew go into the tree with each new filter."""
MATCH_CACHE_MAX_TOPICS: Final = 65_536
MATCH_CACHE_ADMITS_EVERY: Final = 16
"""Once full, the cache remembers one new topic of so many: more topics in turn than fit don't push one another out."""
MATCH_CACHE_MAX_TOPIC_BYTES: Final = 512
"""Longer topics are matched each time, and not cached."""
MATCH_CACHE_MAX_TARGETS: Final = 4 * 1024 * 1024
"""References to targets in all cached results together, 8 bytes each."""
RETAINED_SLICE_MAX_TOPICS: Final = 2048
"""Retained topics looked at between two turns of the event loop."""

# --- session: what waits for a client or comes from one -------------------------------------------------------------
CLIENT_FILTERS_MAX_BYTES: Final = 16 * 1024 * 1024
"""Filters of one client, besides `mqtt.max_subscriptions`, because all nodes have them in memory."""
HEADS_MAX: Final = 262_144
"""Packet heads that are recognised without a parse, for each protocol version. A full table is emptied."""
HEADS_PER_TOPIC_MAX: Final = 16
FANOUTS_MAX: Final = 65_536
"""How many sets of subscribers are kept, so that topics can share them."""
FANOUTS_MAX_TARGETS: Final = 1024 * 1024
"""References to subscribers in all those sets."""
MQUEUE_MAX_BYTES: Final = 16 * 1024 * 1024
"""How much waits for a place in one client's window; `max_mqueue_len` bounds the number of messages."""
MQUEUE_AHEAD_MAX: Final = 10_000
"""How many messages more may wait for a session that lasts, while its client reads and publishers are paused."""
OUTGOING_ALIASES_MAX: Final = 32
"""How many topic aliases we use towards one client, however many it allows."""
ALLOWED_HEADS_MAX: Final = 1024
"""Packet heads that one client is known to be allowed to publish. A full set is emptied."""
NUMBERS_RESERVED: Final = 4096
"""How many sequences and numbers a session uses before it stores that again. A crash skips at most so many."""
AWAY_SESSIONS_MAX: Final = 1_000_000
"""Sessions of one node whose clients are away. Beyond it the one that would expire first ends."""
SESSIONS_EXPIRED_PER_TICK_MAX: Final = 256
INBOUND_LINE_MAX: Final = 1024
"""Messages of one client that wait for the log or for other nodes. Then it isn't read until half of them are done."""
INBOUND_LINE_MAX_BYTES: Final = 4 * 1024 * 1024
HELD_MAX_BYTES: Final = 64 * 1024 * 1024
"""Messages of all clients that wait for newer tables. From half of it on, messages of clients that left go, the oldest
first, and clients that wait aren't read. A client that sends beyond it is cut off (0x97)."""
INBOUND_BYTES: Final = 512
"""How much one of them counts for, beside its packet."""
HELD_LINES_PER_TURN: Final = 8
"""For how many clients messages that waited for newer tables are matched between two turns of the event loop."""
SUBSCRIBES_WAITING_MAX: Final = 64
"""SUBSCRIBEs of one client that wait for the log. Then it isn't read until one of them is answered."""
ORIGINS_MAX: Final = 100_000
"""Sessions that last and publish at QoS 2, whose last numbers a node knows. It takes repeats of others for new."""
ORIGINS_WINDOW: Final = 4096
"""How many numbers of each are known one by one: so many may be under way from a node that the client left."""
PARTIAL_CHUNKS_MAX: Final = 256
"""How many reads the beginning of a packet is kept as, before they are joined."""
PARTIALS_MAX_BYTES: Final = 512 * 1024 * 1024
"""Beginnings of packets of all clients, or less: at most the next share of the memory. Beyond it a client that is amid
a packet of several reads is cut off."""
PARTIALS_MEMORY_SHARE: Final = 8
SINK_CONGESTED_BYTES: Final = 1024 * 1024
"""Bytes that wait for one client before its publishers are paused."""
SINK_DRAINED_BYTES: Final = 256 * 1024
SINK_LIMIT_BYTES: Final = 8 * 1024 * 1024
"""QoS 0 messages beyond it are dropped for that client and counted."""
SINK_CONGESTED_MAX_S: Final = 0.5
"""A client that reads nothing for so long lags, and doesn't hold its publishers any more."""
SINK_HELD_MAX_S: Final = 5.0
"""A client whose queue hasn't drained for so long doesn't hold its publishers any more, even if it reads steadily."""
GIVEN_UP_WAIT_MAX_S: Final = 1.0
"""Messages wait behind a QoS 2 message that expired until that is gone from Redis. For so long they are sent even if
they expire meanwhile."""

# --- listeners: descriptors and turns -------------------------------------------------------------------------------
READ_MAX_BYTES: Final = 64 * 1024
"""How much one read of one connection brings."""
READ_MIN_BYTES: Final = 4 * 1024
"""How much is read at once, at least, from a client whose packets take long to process."""
READ_WORK_MAX_S: Final = 0.004
"""If what was read at once takes longer, the next read of that connection is half as large."""
WRITE_JOIN_MAX_BYTES: Final = 256 * 1024
"""Up to so much is joined before it is written; more is written chunk by chunk."""
WRITE_VECTOR_MAX: Final = 512
TURN_EVENTS_MAX: Final = 512
TURN_ROUNDS_MAX: Final = 16
TURN_WORK_MAX_S: Final = 0.02
"""When a turn has taken so long, no other client has its part in it."""
SPIN_MAX_S: Final = 0.00005
"""How long a turn that found little waits awake for more, if more came so soon lately."""
ACCEPTS_PER_TURN_MAX: Final = 64
LISTEN_BACKLOG_MAX: Final = 4096
SWEEP_INTERVAL_S: Final = 0.1
STOOD_STILL_S: Final = 3 * SWEEP_INTERVAL_S
"""A node that didn't sweep for so long stood still. It looks whether its tables are old before it reads on."""
SWEEP_TICKS: Final = 10
"""Keep-alive is checked for a tenth of the connections a tick."""
LAGGING_MAX_S: Final = 30.0
"""A client that lags and reads nothing for so long is cut off (0x97)."""
DISCARD_MAX_BYTES: Final = 256 * 1024
"""How much is thrown away at once of what a client sends that was cut off."""
LINGER_MAX_S: Final = 1.0
"""How long a client that was cut off may take to read why."""
PROXY_HEADER_MAX_BYTES: Final = 4096
TLS_HELLO_MAX_BYTES: Final = 5 + 16 * 1024
"""One record: so much of a client is kept before anything of TLS is made for it."""
TLS_HANDSHAKE_BYTES: Final = 45 * 1024
TLS_SESSION_BYTES: Final = 20 * 1024
"""What a client costs amid its handshake, and after it, until it is let in."""
UNAUTHENTICATED_MAX_BYTES: Final = 24 * 1024 * 1024
"""What all clients that aren't let in yet may cost, or less: at most the next share of the memory."""
UNAUTHENTICATED_MEMORY_SHARE: Final = 16
UNAUTHENTICATED_COUNTED_BYTES: Final = 512
"""A client that costs less isn't counted: its connection itself costs more."""
UNAUTHENTICATED_READ_BYTES: Final = 64
"""How much one read of theirs counts for, beside its bytes."""
UNAUTHENTICATED_READ_MAX_BYTES: Final = 8 * 1024
"""How much one read of one of them brings."""
CONNECTION_BYTES: Final = 8 * 1024
"""What a connection takes, in the kernel, too. One address may have half of what the memory has room for."""
TLS_GREETINGS_PER_TURN_MAX: Final = 8
"""ClientHellos answered before other clients have their turn; each takes about a millisecond."""
TLS_REFRESH_S: Final = 5.0
"""How often the files of certificates are looked at."""
WS_HEAD_MAX_BYTES: Final = 8 * 1024
WS_FRAME_MAX_BYTES: Final = PACKET_MAX_BYTES
"""A frame is passed on as it comes; the zone's `max_packet_size` bounds what is kept."""
FILTER_SLICE_MAX_BYTES: Final = 256 * 1024
"""How much one connection encrypts and frames at a time; the rest waits until that is written."""
FILTER_ANSWERS_MAX_BYTES: Final = 64 * 1024
"""How much TLS and WebSocket may answer a client that reads nothing, before it is cut off."""
THROTTLE_TICK_S: Final = 0.01
"""How often clients over a rate are looked at."""
THROTTLE_CHECK_S: Final = 1.0
"""A client that must wait is looked at again after so long, however long it must wait: it may be closed."""

# --- auth: who may connect, and do what -----------------------------------------------------------------------------
USERS_MAX: Final = 1_000_000
RULED_MAX: Final = 1_000_000
"""Users, client ids and "all" that have rules in the log."""
RULES_OF_ONE_MAX: Final = 1000
RULES_MAX_BYTES: Final = 64 * 1024
"""The rules of one user or client id in the log, or in a token or an answer of another service."""
BANS_MAX: Final = 1_000_000
BAN_PATTERNS_MAX: Final = 1000
"""Bans by pattern. Every CONNECT is checked against each."""
HASH_THREADS_MAX: Final = 2
HASHES_WAITING_MAX: Final = 256
"""Passwords that wait to be hashed. Beyond it a client of the address with the most of them hears 0x89."""
HASH_GONE_MAX: Final = 1000
"""Clients that are gone and would have shared one hash: so many are kept until it is done, and as many as wait."""
HASH_SLICE_LOGINS: Final = 50
"""How many logins that shared a hash go on in one turn of the event loop."""
ARGON2_MAX_KIB: Final = 262_144
"""How much one hash may cost, and so one link of the chain for one CONNECT. It is made in a thread."""
ARGON2_MAX_PASSES: Final = 16
BCRYPT_MAX_ROUNDS: Final = 14
PBKDF2_MAX_ITERATIONS: Final = 10_000_000
SCRAM_NAME_MAX_CHARACTERS: Final = 256
"""A user name as it is said, and as SASLprep makes it, which takes up to 2 µs a character on the event loop."""
SCRAM_NONCE_MAX_CHARACTERS: Final = 256
VERIFIED_MAX: Final = 100_000
"""Passwords that were found right, kept as a keyed sum: a client that comes back costs no hash."""
FAILED_LOGINS_MAX: Final = 100_000
"""Names and addresses of failed logins that a node remembers. A further one pushes out the oldest."""
FAILED_LOGINS_KEPT_S: Final = 900.0
"""After so long without a failure the count begins again."""
FAILED_LOGINS_OF_ADDRESS_MAX: Final = 100
"""After so many failures at one address each name there waits from its first failure on."""
LOGINS_OF_NAME_MAX: Final = 64
"""Passwords of one name at one address that wait for a hash or another service. The client of a further one hears
0x9F."""
KNOWN_CLIENTS_MAX: Final = 100_000
"""Clients that were let in, whose failed logins are counted on their own. A further one pushes out the oldest."""
PASSWORD_MAX_BYTES: Final = 4096
JWT_MAX_BYTES: Final = 8192
JWT_SKEW_MAX_S: Final = 5
"""How far an issuer's clock may be ahead of ours."""
EXPIRES_MAX_S: Final = 253_402_300_800.0
"""The year 10,000, since the epoch. If a service or a token says that a connection ends later, it doesn't mean
seconds."""
JWKS_MAX_BYTES: Final = 256 * 1024
JWKS_RETRY_S: Final = 5.0
"""How long after an unknown key, or a failure, the key set is asked for again at the earliest."""
REFUSALS_LOGGED_PER_S: Final = 10
"""Lines of the log for each kind of refusal: clients can cause them as often as they like."""
ASKED_MAX: Final = 1000
"""Questions to one service that are under way or wait for a connection. Beyond it a client that connects hears 0x89,
and questions of connected clients wait."""
ASKED_OF_CONNECTION_MAX: Final = 32
"""How many of them may be of one connection; its others wait."""
ASKING_OF_GONE_MAX: Final = ASKED_MAX
"""Questions that wait, of all connections that are gone. Beyond it what they asked for is refused."""
ASKING_OF_CONNECTION_MAX: Final = 2 * INBOUND_LINE_MAX
"""Questions of one connection that wait. Beyond it what it asks for is refused (0x83)."""
ANSWER_MAX_BYTES: Final = 64 * 1024
AUTH_EXCHANGE_MAX_BYTES: Final = 4096
"""Authentication data of one step of an enhanced authentication."""
AUTHORIZATIONS_MAX_TOPIC_BYTES: Final = 1024
"""Answers about longer topics are not kept."""
RULES_COMPILED_MAX: Final = 10_000
"""Clients whose rules are kept compiled. Other rules are compiled again when they are needed."""
FLAPPING_MAX_CLIENTS: Final = 100_000
"""Clients whose disconnects are counted. A further one pushes out the one that was quiet for the longest."""
KICK_SLICE_CLIENTS: Final = 1000
"""Clients that are checked against a new ban between two turns of the event loop."""
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
"""What a user may have if the configuration says nothing else."""
QUOTA_AWAY_PERCENT: Final = 75
"""The part of the quota of queued bytes for sessions whose clients are away. The rest is for connected clients."""
QUEUED_MESSAGE_BYTES: Final = 128
"""How much a message that waits counts for, beside its packet."""
RETAINED_MESSAGE_BYTES: Final = 256
"""The same for a retained message, or for a topic that was cleared lately."""
SESSION_STORED_BYTES: Final = 512
"""About how much a session takes in Redis, beside its messages and subscriptions."""
QUOTA_TOLD_EVERY_S: Final = 1.0
QUOTA_TOLD_PARTS: Final = 100
"""A node tells others of users who have one of so many parts of a quota there, or more."""
QUOTA_SHARES: Final = 64
"""A user gets one of so many parts of a quota at a node before others are told. They are told once it has half."""
QUOTA_TOLD_SOON_S: Final = 0.05
"""The time between two such notes."""
QUOTA_RETAINED_SHOWN_BYTES: Final = 64 * 1024
"""Users who have stored less, and less than a part of their quota, aren't looked at."""
QUOTA_USERS_TOLD_MAX: Final = 100
"""How many users a node tells others of: those who have most."""
QUOTA_SLICE_USERS: Final = 1000
"""Users who are looked at between two turns of the event loop, when quotas changed."""
QUOTA_SHRINKS_AFTER_S: Final = 60.0
"""How long a smaller `maxmemory` of Redis, or the first that is seen, must stand before quotas become smaller."""
QUOTA_ALARMS_MAX: Final = 16
"""How many users that are over a quota have an alarm."""

# --- node -----------------------------------------------------------------------------------------------------------
LAG_SAMPLE_INTERVAL_S: Final = 10.0
AUTHORIZATION_SLICE_CLIENTS: Final = 2000
"""Clients that are asked about again between two turns of the event loop, when the rules changed."""
JUDGING_SLICE_RULES: Final = 2000
"""Rules that are looked at between two turns of the event loop for what clients ask. As many are looked at for what
they are subscribed to, when rules change."""
JUDGING_SHARE_RULES: Final = 200
"""How many of them may be for one client that waited."""
JUDGEMENT_RULES: Final = 10
"""How much a judgement counts for, beside the rules that it looks at."""
STANDING_SLICE_CLIENTS: Final = 2000
"""How many clients that the change isn't about are gone through meanwhile."""
STANDING_AT_ONCE: Final = 64
"""Clients whose subscriptions are judged at the same time."""
STANDING_WAIT_S: Final = 1.0
"""How long one client's home, or service, may hold up the others."""
STANDING_AGAIN_S: Final = 0.5
STANDING_AGAIN_MAX: Final = 20
"""After how long a client with a SUBSCRIBE under way is judged again, and how often at most."""
STANDING_READS_MAX: Final = 5
"""How often a session's subscriptions are read again because its client changed them meanwhile."""
STANDING_PAGE_BYTES: Final = 32 * 1024
"""How much of a session's subscriptions goes at a time from its home to the node that judges; at least one."""
STANDING_ROW_BYTES: Final = 8
STANDING_LOGGED_PER_S: Final = 10
SESSIONS_TICK_S: Final = 0.25
"""How often wills that are due and sessions that expired are looked for."""
RETAINED_FEED_TOPICS: Final = 512
"""Retained topics looked at, for one new subscription, between two turns of the event loop."""
OFFERED_MAX_BYTES: Final = 64 * 1024 * 1024
"""Wills and other messages that no connection waits for, and that are tried again. Further ones are lost."""
OFFERED_BYTES: Final = 512
"""How much one counts for, beside its packet."""
OFFERED_TOGETHER_MAX: Final = 64
"""How many of them are tried again between two turns of the event loop."""
OFFER_RETRY_MIN_S: Final = 0.05
OFFER_RETRY_MAX_S: Final = 5.0
WILLS_MAX_S: Final = 2.0
"""How long a node that stops waits until its clients' wills are on their way."""
WILL_HELD_S: Final = 30.0
"""For how long the will of a client that its node sent to others is held back: it isn't published if the client comes
back meanwhile."""
WILLS_HELD_MAX_BYTES: Final = 64 * 1024 * 1024
"""Of those, at one core. A further one is published at once."""
EVICTION_TICK_S: Final = 0.1
EVICTION_JOINED_MAX_S: Final = 0.5
"""A node that sends its clients away, and stood still, makes good no more than this."""
EVICTION_BEGINS_S: Final = 1.0
"""How long a node that drains waits before it sends the first client away: others learn that it does, so that they
share the rate, and balancers send nobody there any more."""
EVICTION_LOOK_S: Final = 0.5
"""How often it asks whether others take clients, and how many drain."""
OTHERS_UNKNOWN_MAX_S: Final = 3.0
"""How long it goes on if nobody can tell; then it sends all clients away at once."""
RETAINED_BACK_S: Final = 2.0
"""How often a client that went away amid its retained messages is looked for, and a log that didn't answer is asked."""
RETAINED_CLEARED_KEPT_S: Final = 300.0
"""How long the log remembers that a topic was cleared, and by whom: nothing older of that client comes later."""
RETAINED_SEEN_MAX_S: Final = 2.0
"""How long a SUBACK waits for the log to say what is retained."""
RETAINED_EXPIRED_LOOK_S: Final = 10.0
RETAINED_EXPIRED_MAX: Final = 100_000
"""Retained messages that expired, found by one look."""
RETAINED_EXPIRED_SLICE: Final = 1000
"""Those taken out of the log at a time."""
RETAINED_LIVE_MAX_TOPICS: Final = 100_000
"""How many topics are remembered that changed while subscriptions are given what is retained."""

# --- plugins, topic rewrite -----------------------------------------------------------------------------------------
PLUGIN_CALL_MAX_S: Final = 0.005
"""A handler that takes longer has failed, because nobody else is served meanwhile."""
PLUGIN_FAILURES_MAX: Final = 10
"""After so many failures within the window a plugin is fenced off."""
PLUGIN_FAILURES_WINDOW_S: Final = 60.0
PLUGIN_FILTERS_MAX: Final = 256
"""Topic filters of one handler of message.publish."""
REWRITE_RULES_MAX: Final = 1024
AUTO_SUBSCRIPTIONS_MAX: Final = 64

# --- logs -----------------------------------------------------------------------------------------------------------
LOGGED_MAX_CHARACTERS: Final = 128
"""How much of a client id, a user name or a topic a line of the log shows."""
LOG_LINE_MAX_CHARACTERS: Final = 2048
"""How long a message may be, without its traceback."""
LOG_LINES_PER_S: Final = 50
"""Lines of one kind."""
LOG_KINDS_COUNTED_S: Final = 1.0
"""How long lines are counted. Then the log says how many more there were of each kind."""

# --- telemetry ------------------------------------------------------------------------------------------------------
LOOP_WATCH_INTERVAL_S: Final = 0.1
LOOP_WATCH_WINDOW_S: Final = 60.0
"""How long the worst pause of the event loop is shown: a common interval of scrapes."""

# --- $SYS -----------------------------------------------------------------------------------------------------------
SYSTEM_VALUES_MAX_S: Final = 1.0
"""How old the values may be that a new subscriber gets."""
