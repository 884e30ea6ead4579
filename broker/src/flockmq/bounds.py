"""All named bounds of the broker. A name ends with its unit. Telemetry exports each bound as a metric, with its name as
a label."""

from __future__ import annotations

from typing import Final

# Configuration and management
CONFIG_MAX_BYTES: Final = 1024 * 1024
SECRET_MAX_BYTES: Final = 4096
MANAGEMENT_REQUEST_MAX_BYTES: Final = 1024
MANAGEMENT_REQUEST_LINE_MAX_BYTES: Final = 16 * 1024
"""Has room for the ban of a user name and a client id of 1,000 bytes each, both escaped by JSON and then in a path."""
MANAGEMENT_HEADER_MAX_BYTES: Final = 4096
MANAGEMENT_HEADERS_MAX: Final = 32
"""Headers of one request, each of at most MANAGEMENT_HEADER_MAX_BYTES."""
MANAGEMENT_CONNECTIONS_MAX: Final = 256
"""Beyond it, a new connection closes one of the address that has the most: the one that was accepted, or answered,
longest ago."""
MANAGEMENT_HANDSHAKES_TOGETHER_MAX: Final = 2
"""TLS handshakes that begin in one event-loop iteration."""
MANAGEMENT_REQUEST_MAX_S: Final = 10.0
"""Time for the first request of a connection, including the TLS handshake; and then for each body."""
MANAGEMENT_ANSWER_MAX_S: Final = 10.0
"""Time for a client to read an answer."""
MANAGEMENT_SMALL_ANSWER_MAX_BYTES: Final = 128 * 1024
"""MANAGEMENT_CONNECTIONS_MAX of them have as many bytes as MANAGEMENT_UNREAD_MAX_BYTES."""
MANAGEMENT_UNREAD_MAX_BYTES: Final = 32 * 1024 * 1024
"""Larger answers, of all connections together, that clients may not have read yet. The last one may exceed it."""
MANAGEMENT_UNWANTED_MAX_BYTES: Final = 512 * 1024
"""After an answer, the server ignores this many bytes, such as the rest of an unread body. Beyond it, it closes the
connection. A whole request is smaller."""
MANAGEMENT_UNWANTED_MAX_S: Final = 1.0
"""Time for which an answered client may continue to send such a body."""
MANAGEMENT_ACCEPT_AGAIN_S: Final = 0.1
"""Pause of accepting after the process ran out of file descriptors."""
MANAGEMENT_KEEP_ALIVE_MAX_SECONDS: Final = 60
MANAGEMENT_BEGUN_TOGETHER_MAX: Final = 2
"""Requests that begin in one event-loop iteration."""
MANAGEMENT_PACED_MAX: Final = 512
"""Requests that wait to begin. Beyond it, one begins at once, so that no probe is refused."""
METRICS_MADE_EVERY_S: Final = 0.1
"""The text of /metrics is made at most this often, for all requests that wait meanwhile."""
LINK_KEY_MIN_BYTES: Final = 16
LINK_KEYS_MAX: Final = 2
"""There are two while the cluster key is being replaced."""
API_KEY_MIN_BYTES: Final = 32
"""Minimum length of the configured key, and length of the keys that the server generates."""
API_KEYS_MAX: Final = 1000
SECRETS_MAX: Final = 16
"""Secrets of the cluster itself in its log."""
AUDIT_MAX: Final = 10_000
"""Changes in the audit log. Beyond it, the oldest are deleted."""
AUDIT_ABOUT_MAX_CHARS: Final = 256
AUDIT_PATH_MAX_CHARS: Final = 1200
"""A path with a client id of `mqtt.max_clientid_len` bytes fits."""
AUDIT_DROPPED_TOGETHER_MAX: Final = 100
"""A new change deletes at most this many old ones."""
SETTINGS_REVISIONS_MAX: Final = 20
"""Revisions of the settings that are changed while nodes run. Beyond it, the oldest are deleted."""
SETTINGS_MAX_BYTES: Final = 16 * 1024
"""Their JSON document."""
SETTINGS_DEPTH_MAX: Final = 8
"""How deep its objects are nested."""
SETTINGS_RACES_MAX: Final = 5
"""How often a change is tried again because another node's came first."""
SETTINGS_ALARM_LOOK_S: Final = 5.0
"""How often a node checks its alarm that it couldn't apply them."""
API_FAILURES_MAX_ADDRESSES: Final = 10_000
"""Addresses whose wrong keys are counted. Beyond it, the longest quiet one is forgotten."""
API_FAILURES_FORGOTTEN_S: Final = 60.0
"""An address without a wrong key for this long starts from zero."""
API_FAILURE_MIN_S: Final = 0.1
API_FAILURE_MAX_S: Final = 5.0
"""Delay of the answer to a wrong key. It doubles each time."""
API_FAILURES_WAITING_MAX: Final = 64
"""Delayed answers to wrong keys. Beyond it, a wrong key gets 429 at once."""

# --- cluster: links, forwarding, membership -------------------------------------------------------------------------
LINK_GREETING_MAX_BYTES: Final = 512
LINK_HANDSHAKE_MAX_S: Final = 3.0
LINK_HANDSHAKES_MAX: Final = 256
"""Accepted unauthenticated connections. Beyond it, a new one closes the oldest."""
LINK_FRAME_MAX_BYTES: Final = 32 * 1024 * 1024
LINK_FORWARD_FRAME_BYTES: Final = 256 * 1024
"""Messages are sent in frames of about this size, so that control frames can overtake them."""
LINK_TRANSPORT_HIGH_BYTES: Final = 256 * 1024
"""A link hands at most about this many bytes to the transport, because control frames can't overtake them there."""
LINK_CONTROL_MAX_BYTES: Final = 64 * 1024 * 1024
"""A peer that leaves this many bytes of control frames unread is disconnected."""
LINK_CONTROL_CHOKED_BYTES: Final = 16 * 1024 * 1024
"""Beyond this many unread bytes of control frames, notifications of owners wait. The largest one still fits below
LINK_CONTROL_MAX_BYTES."""
LINK_REQUESTS_MAX: Final = 4096
LINK_STREAMS_MAX: Final = 64
LINK_STREAM_CREDIT_ITEMS: Final = 8
LINK_HEARTBEAT_S: Final = 0.5
LINK_LOOK_S: Final = 0.1
"""How often a node checks for news that can't wait for its next heartbeat."""
LINK_SILENT_MAX_S: Final = 3.0
LINK_UNANSWERED_MAX_S: Final = 5.0
"""Time for a heartbeat and its answer over a full link. After that, the link is considered open in one direction
only."""
LINK_LEAVE_MAX_S: Final = 1.0
"""How long a stopping node waits for its peers to read everything and close: first on its tunnels, then as long again
on the links that carried these."""
FORWARDED_MAX_S: Final = 10.0
"""How long a stopping node waits for nodes and owners that it has messages for: until a link is back, or until they are
purged."""
FORWARDED_LOOK_S: Final = 0.05
LINK_REDIAL_MIN_S: Final = 0.1
LINK_REDIAL_MAX_S: Final = 2.0
RETRIED_QUIETLY_MAX_S: Final = 10.0
"""Failures that are retried are logged as INFO for this long, then as WARNING, because at first other nodes may not
have started yet."""
EMBEDDED_RETRY_MIN_S: Final = 0.05
EMBEDDED_RETRY_MAX_S: Final = 5.0
"""Delay before an embedded Valkey that exited is started again. It doubles each time."""
EMBEDDED_STEADY_S: Final = 2.0
"""A Valkey that exits again within this time doesn't count as recovered. It is shorter than UNFIT_AFTER_S, so a node
stays ready if its Valkey recovers at once."""
WORKERS_MAX: Final = 64
"""Replicants of one `flockmq run --workers`."""
WORKER_RETRY_MIN_S: Final = 0.1
WORKER_RETRY_MAX_S: Final = 10.0
"""Delay before one of its nodes that ended is started again. It doubles each time."""
WORKER_STEADY_S: Final = 60.0
"""A node that ends after a longer time is started again after the shortest delay."""
EMBEDDED_ROOM_MIN_BYTES: Final = 1024 * 1024
"""If less disk space is left when Valkey exits, the node reports that the disk is full."""
EMBEDDED_MEMORY_SHARE: Final = 4
"""One part in this many of the container's or machine's memory is for an embedded Valkey. The rest is the node's."""
EMBEDDED_MAXMEMORY_PERCENT: Final = 60
"""Of that part, its `maxmemory`. The rest is for the pages that are copied while it rewrites its file."""
TASK_AGAIN_S: Final = 1.0
"""A failed task starts again after this time."""
SEED_RESOLVE_S: Final = 2.0
SEED_ADDRESSES_MAX: Final = 64
PEER_FORWARD_MAX_BYTES: Final = 32 * 1024 * 1024
"""QoS 0 messages waiting for one node. Further ones are dropped and counted."""
PEER_RESEND_MAX_BYTES: Final = 32 * 1024 * 1024
PEER_RESEND_MAX_MESSAGES: Final = 100_000
"""QoS 1 and 2 messages that one node hasn't accepted yet. Publishers of further ones get 0x97. Retained messages had
room when they were written to the log; they are taken though it is gone since."""
PEER_BLOCKED_BYTES: Final = 4 * 1024 * 1024
PEER_DRAINED_BYTES: Final = 1 * 1024 * 1024
PEER_IDLE_S: Final = 60.0
"""A link between two replicants without messages for this long is closed."""
TUNNEL_WINDOW_BYTES: Final = 256 * 1024
"""Bytes in flight in one direction of a tunnel, including those waiting in the core."""
TUNNEL_FRAME_BYTES: Final = 64 * 1024
TUNNELS_MAX: Final = 1024
"""Tunnels through one link. The core buffers at most TUNNEL_WINDOW_BYTES for each."""
TUNNEL_AFTER_S: Final = 2.0
"""A node that couldn't be dialled for this long is reached through a core, until it can be dialled again."""
PEERS_FORMER_MAX: Final = 1024
"""Purged nodes whose last sequence numbers are remembered, because they may rejoin."""
REJOIN_SLICE_FILTERS: Final = 1000
"""Routes that a rejoining node writes at a time, and clients that it checks per event-loop iteration."""
ROUTES_TRIED_AGAIN_MAX: Final = 100_000
"""Routes that a node or slot deletes at a time, after they couldn't be deleted while the log was unavailable."""
ROUTE_ROWS_UNDER_WAY_MAX: Final = 500
"""Rows of this node on their way to the shard of routes. All nodes apply them in one go. Others wait, users in turn."""
ROUTE_ROW_BYTES: Final = 128
"""A row that waits counts this many bytes besides its own."""
ROUTES_WAITING_MAX_BYTES: Final = 64 * 1024 * 1024
"""Rows that wait. What is beyond it is refused."""
ROUTES_OF_USER_WAITING_MAX_BYTES: Final = ROUTES_WAITING_MAX_BYTES // 2
"""Of these, rows of one user."""
FORWARD_WAIT_S: Final = 0.2
SLOT_QUEUE_MAX_BYTES: Final = 32 * 1024 * 1024
SLOT_QUEUE_MAX_MESSAGES: Final = 100_000
"""QoS 1 and 2 messages for durable sessions that one owner hasn't accepted yet. Publishers of further ones get 0x97;
retained ones are taken, as for PEER_RESEND_MAX_BYTES. Publishers are paused from half of it on."""
SLOT_WINDOW_BYTES: Final = 4 * 1024 * 1024
"""Bytes of these in flight to one owner. The rest waits at the sender."""
SLOT_BLOCKED_BYTES: Final = 1024 * 1024
"""If more bytes are for slots whose owner can't commit them, publishers to these slots are paused."""
SLOT_BLOCKED_MAX_BYTES: Final = 8 * 1024 * 1024
"""Up to this many bytes for such slots don't count towards SLOT_WINDOW_BYTES. Publishers may have sent them before
they were paused."""
TAKEN_APART_AFTER_S: Final = 0.1
"""A message that isn't committed for this long is blocked. The owner then accepts the committed messages behind it
without it."""
CONGESTED_KEPT_S: Final = 1.0
"""A sender treats a slot as congested for this long after the owner's report. The owner repeats the report four times
as often."""
TAKERS_KEPT_S: Final = 2.0
"""While Redis is short of memory, a node uses an owner's report of which sessions accept messages for this long."""
TAKERS_LOOKED_AT_MAX: Final = 2_000
"""An owner checks this many sessions for that report every 0.1 s. For slots that it didn't reach in time it reports
that all messages would wait."""
TAKERS_FILTERS_MAX: Final = 64
TAKERS_FILTERS_MAX_BYTES: Final = 4 * 1024
"""Filters in such a report of sessions for which messages would wait. If there are more, the report says that all
messages would wait."""
CONGESTION_CHECK_S: Final = 0.02
"""How often congested send queues, and messages that wait for the log, are checked."""
HEADS_NOTES_MAX: Final = 64
"""Announced log ends that a node's tables haven't reached yet. Beyond it, the oldest are dropped, because newer ones
include them."""
HEADS_CORES_MAX: Final = 64
"""Cores whose clocks a node compares with its own."""
HEADS_QUICKEST_S: Final = 10.0
"""Period for which a core's fastest notification counts as the reference for the delay of others; it is used for up to
two periods."""
CLOCKS_AGREE_S: Final = 2.0
"""Clocks that differ by at most this much agree. It includes the delay of a heartbeat."""
CLOCK_JUMP_AFTER_S: Final = 5.0
"""If most cores report for this long that the cluster's time is wrong, it is set at once."""
CLOCK_SLEW_S: Final = 0.005
"""The cluster's time is corrected towards the clocks that agree by this much each second."""
CLOCK_OFF_MAX_S: Final = 2.0
"""A node whose clock differs more from the cluster's time raises an alarm."""
MEMBER_UNLINKED_MAX_S: Final = 1.0
MEMBER_VOTE_MAX_S: Final = 2.0
"""A core's heartbeat counts for a majority for this long."""
MEMBER_FENCE_S: Final = 1.0
"""A node that hasn't heard from a majority for this long acknowledges nothing that needs other nodes. Only after that
may a majority purge it."""
SLOTS_UNSERVED_MAX_S: Final = 5.0
"""A core that hears nothing from Redis for this long in all, while the leader does, loses its slots. It begins anew
when it has heard Redis for as long without a break."""
SLOTS_WRITTEN_ANEW_S: Final = 10.0
"""After Redis lost data, slot owners write their sessions again. For this long the leader moves no slot away from an
owner that can do so."""
UNFIT_AFTER_S: Final = 5.0
"""A node isn't ready if for this long its tables were stale, or it couldn't reach Redis while another node could."""
LEAVE_MAX_S: Final = 1.0
LEAVE_HEARD_S: Final = 1.0
"""A core that an operator tells to leave drains for this time before it decides: by then all others have heard it."""
LEAVE_BEGINS_S: Final = 0.5
"""It ends this long after it decided: until then the answer is sent, and the audit log has the request."""
FORGET_WAIT_S: Final = 10.0
"""How long a request to forget a dead core waits until the leader has purged it."""
MEMBER_VOTES_MAX: Final = 1024
LEASE_TTL_S: Final = 2.0
LEASE_RENEW_S: Final = 0.25
TRIM_EVERY_S: Final = 10.0
CORE_WAIT_MAX_S: Final = 2.0
CORE_RETRY_S: Final = 0.05
CORE_UNABLE_S: Final = 60.0
"""After a core couldn't write for a replicant, the replicant doesn't return to this core for this long."""
OVERVIEW_ASKED_EVERY_S: Final = 0.1
"""How often a node asks all others for one overview, however many ask it."""
OVERVIEW_WAIT_S: Final = 2.0
"""How long a request about the whole cluster waits for the answer of each node."""
DIRECTORY_SLICE_ROWS: Final = 100
"""Rows of clients or sessions made per event-loop iteration."""
DIRECTORY_SLICE_IDS: Final = 2000
"""Client ids of one slot that are sorted per event-loop iteration."""
DIRECTORY_LOOKED_AT_MAX: Final = 5000
"""Clients or sessions that one owner checks for a page. So a page with filters may have fewer rows than requested."""
DIRECTORY_PAGES_TOGETHER_MAX: Final = 2
"""Pages of clients or sessions that one node asks for at once. Others wait."""
DIRECTORY_PAGES_WAITING_MAX: Final = 256
DIRECTORY_PAGE_WAIT_MAX_S: Final = 30.0
DIRECTORY_PAGE_MAX_BYTES: Final = 1024 * 1024
"""Client ids and filters of one page. The last row may exceed it."""
DIRECTORY_NAME_MAX_CHARS: Final = 1024
"""Characters of a user name that are shown."""
MOVE_EVERY_S: Final = 5.0
"""A core asks at most one replicant in this time to move to another core."""
MOVE_DIFFERENCE: Final = 2
"""Replicants move if one core has at least this many more than another."""
MEMBER_UNHEARD_MAX_S: Final = 6.0
EVENTS_MAX: Final = 20_000
EVENTS_FLUSH_S: Final = 1.0
EVENTS_ENTRY_MAX: Final = 1000
EVENTS_TRIM_INTERVAL_S: Final = 60.0
EVENTS_TEXT_MAX_BYTES: Final = 256
"""A longer client id is cut, and ends in a digest."""
EVENTS_NOTES_MAX: Final = 1000
EVENTS_STREAM_MAX_BYTES: Final = 64 * 1024 * 1024
EVENTS_LOOK_BYTES: Final = 8 * 1024 * 1024
"""A core checks the size of a stream of events after appending this many bytes."""

# --- owners of client ids: attaches, wills, messages ----------------------------------------------------------------
SLOTS: Final = 1024
ATTACH_WAIT_S: Final = 6.0
KICK_WAIT_S: Final = 5.0
KICK_UNLINKED_S: Final = 0.25
UNCONFIRMED_MAX: Final = 100_000
"""Connections of which their nodes didn't confirm in time that they are closed, at one owner. Beyond it, the first one
is forgotten.
"""
ATTACHES_MAX: Final = 100_000
ATTACHES_MAX_BYTES: Final = 64 * 1024 * 1024
"""Attach requests, with their wills, that owners haven't answered yet. Further CONNECTs get 0x88."""
OWNER_WILLS_MAX: Final = 1_000_000
OWNER_WILLS_MAX_BYTES: Final = 256 * 1024 * 1024
"""Wills of clean sessions that one owner keeps. A will beyond it is lost if the client's node dies."""
OWNER_WILLS_OF_USER_MAX_BYTES: Final = OWNER_WILLS_MAX_BYTES // 2
"""Of these, wills of one user."""
NOTES_BATCH_MAX: Final = 4096
NOTES_WAITING_MAX: Final = 100_000
"""Notifications of one kind that wait for one node without a link. Further ones are dropped: when the node is linked
again, it repeats its requests and registers its clients."""
REGISTERS_EARLY_MAX: Final = 100_000
"""Notifications about slots whose sessions this owner hasn't loaded yet. Beyond it, nodes are asked again later."""
EARLY_KEPT_S: Final = 10.0
"""A core keeps notifications about a slot for this long if its table doesn't say yet that it owns the slot."""
SLOT_LOST_MAX_S: Final = 5.0
"""If another core took a slot, but for this long the own table still says that the slot is this core's, this core takes
it again."""
CONNECTION_RETURN_S: Final = 5.0
"""A new owner waits this long for the connection of a session before it treats the client as disconnected."""
RETURNING_MAX: Final = 100_000
RETURNING_MAX_BYTES: Final = 64 * 1024 * 1024
"""Attach requests that wait for news of how the session's former connection ended."""
MARKS_KEPT_S: Final = 3600.0
"""A purged node may rejoin within this time, and repeat what it sent before."""
MARKS_STRANGERS_MAX: Final = 256
"""Such nodes that are remembered. Beyond it, the one that was purged first is forgotten."""
SLOT_WORK_MAX_S: Final = 0.005
"""Work on all sessions, on slots that move, on filters of ended sessions, or on retained messages for new
subscriptions, yields to the event loop after this time."""
NOTES_RETRY_S: Final = 0.01
"""How often a link that can't take more notifications is checked."""
RESEND_DELAY_S: Final = 0.25
"""Delay before a session resends deliveries for which there was no link or no room."""
INTAKE_SENDER_MAX_BYTES: Final = 64 * 1024 * 1024
"""Messages of one node that an owner holds because it can't take them yet. A sender beyond it ignores its window, so
its link is closed."""
MARKS_PER_SLOT_MAX: Final = 4096
"""Sessions publishing at QoS 2 whose last number a slot knows. Duplicates of other sessions are taken for new
messages."""
STORE_STOP_MAX_S: Final = 2.0
"""How long a stopping core waits for its sessions to be committed."""
DELIVERIES_MAX_BYTES: Final = 64 * 1024 * 1024
"""Bytes that durable sessions here have queued on the link to a node with their clients. Beyond it, the deliveries
wait."""

# --- owners of client ids: durable sessions in Redis ----------------------------------------------------------------
STORE_QUEUE_MAX_BYTES: Final = 64 * 1024 * 1024
"""Uncommitted changes of sessions. Beyond it, no messages are accepted, only changes that remove some."""
STORE_CHANGE_BYTES: Final = 100
"""Each change counts this many bytes besides its own."""
STORE_BATCH_MAX_BYTES: Final = 1024 * 1024
"""Size of one function call for one slot, rounded up to a whole message. The rest goes into the next call."""
STORE_MESSAGE_MAX_BYTES: Final = 16 * 1024 * 1024
"""All copies of a message in one slot, and its last sequence number, are written by one call, so that nothing is
doubled if the owner dies in between. Copies beyond this size may be doubled."""
STORE_TURN_MAX_BYTES: Final = 4 * 1024 * 1024
"""Batches of all slots in one round trip."""
STORE_TAKE_SLOTS: Final = 64
"""Slots whose sizes a new owner asks for together."""
STORE_SLOT_SMALL_BYTES: Final = 1024 * 1024
"""Slots with less data are read first, then all others by their sizes. Sizes are as Redis counts its memory."""
STORE_READ_MAX_BYTES: Final = 16 * 1024 * 1024
"""Data of new slots that a core reads from one server at a time. A larger slot is read alone."""
STORE_READ_KEYS: Final = 256
STORE_READ_FIELDS: Final = 256
"""Keys per round trip, and fields per reply, when a core reads slots."""
STORE_MEASURE_KEYS: Final = 512
"""Keys whose sizes a core asks for in one round trip."""
STORE_READ_BYTES: Final = 2 * 1024 * 1024
STORE_READ_MIN_BYTES: Final = 64 * 1024
"""What one round trip brings at most: STORE_READ_BYTES, and less after it didn't come in time. A key with more is read
alone, in pages of about this size: Redis may return more fields than were asked for, such as all of a bucket."""
SLOT_SPOILT_RETRY_S: Final = 5.0
"""How often a slot with unreadable data in Redis is tried again."""
STORE_WATCH_EVERY_S: Final = 1.0
REDIS_SHORT_PART: Final = 0.75
REDIS_ROOM_PART: Final = 0.70
"""Shares of Redis' `maxmemory`. From REDIS_SHORT_PART on, messages that would be queued in durable sessions, retained
or delayed are refused, until Redis uses less than REDIS_ROOM_PART."""
REDIS_RESERVED_PART: Final = 0.85
"""From this share on, the rest of Redis' memory is reserved for the log. Owners hold back messages for their
sessions."""
REDIS_STREAMS_PARTS: Final = 32
REDIS_STREAM_MIN_BYTES: Final = 1024 * 1024
"""A shard of the log, or a stream of events, may use one of REDIS_STREAMS_PARTS parts of Redis' memory, but at least
this much."""

# --- rlog: the replicated log ---------------------------------------------------------------------------------------
MAX_ROUTES: Final = 10_000_000
"""Rows of each table of filters: routes, members of shared subscriptions, and claims of exclusive ones."""
MAX_RETAINED_BYTES: Final = 1024 * 1024 * 1024
LOG_TABLE_MAX_ROWS: Final = 10_000_000
LOG_TABLE_MAX_BYTES: Final = 1024 * 1024 * 1024
LOG_TRANSACTION_MAX_BYTES: Final = 256 * 1024
"""Operations beyond it go into the next transaction. A single operation may be as large as a packet."""
LOG_APPEND_MAX_BYTES: Final = 1024 * 1024
LOG_APPEND_MAX_TRANSACTIONS: Final = 1000
"""Size of one append, which makes one entry. The rest goes into the next."""
LOG_PENDING_MAX_BYTES: Final = 32 * 1024 * 1024
"""Writes of this node to one shard that its own tables don't show yet."""
LOG_COMMIT_QUEUE_MAX_BYTES: Final = 64 * 1024 * 1024
"""Appends from all nodes that wait in one core."""
LOG_WRITE_DEADLINE_S: Final = 10.0
LOG_READ_MIN_ENTRIES: Final = 2
LOG_READ_MAX_ENTRIES: Final = 64
LOG_READ_BYTES: Final = 1024 * 1024
"""Target size of a read of a log. The number of entries to ask for is chosen by the size of former ones."""
LOG_READ_BLOCK_S: Final = 1.0
LOG_REPLY_MAX_S: Final = 5.0
LOG_RETRY_MIN_S: Final = 0.02
LOG_RETRY_MAX_S: Final = 1.0
LOG_WATCH_EVERY_S: Final = 1.0
LOG_CLOSED_LOOK_S: Final = 0.05
"""How often a node checks whether the cores have agreed on a new generation that it can continue with."""
LOG_CLOSED_MAX_S: Final = 2.0
"""If the cores haven't agreed on a log for this long, its server may be a former primary, so nodes ask again for the
primary."""
BALLOT_WAIT_S: Final = 1.0
"""Time for a core to answer a vote."""
BALLOT_TURN_S: Final = 0.25
"""The cores start a new generation one after the other, with this delay."""
BALLOT_PATIENCE_S: Final = 1.0
"""A core waits this long for a generation for which it voted for another core."""
LOG_UNHEARD_MAX_S: Final = 2.0
"""A node that heard nothing from Redis for this long reports that. Such a core gives no bootstraps, because its tables
may be old."""
LOG_BEHIND_REDIS_MAX_S: Final = 10.0
"""If the log ends before what a node has applied for this long, it is another log, and the node bootstraps."""
LOG_TURN_MAX_S: Final = 0.005
"""Applying, sweeping and exporting yield to the event loop after this time."""
LOG_SLICE_MAX_BYTES: Final = 64 * 1024
LOG_CHECKPOINT_EVERY_S: Final = 30.0
LOG_CHECKPOINTS_MAX: Final = 8
"""Checkpoints whose digests a node remembers, to compare them with the digests that cores report later."""
LOG_MEND_SPREAD_S: Final = 10.0
"""Nodes with wrong digests bootstrap at random times within this period, not all at once."""
ALARMS_MAX: Final = 1000
LOG_KEPT_MAX_BYTES: Final = 32 * 1024 * 1024
"""Writes of this node to one shard that it keeps until most cores have them. Beyond it, the oldest are dropped."""
LOG_PURGED_MAX_INCARNATIONS: Final = 10_000
LOG_RETENTION_BYTES: Final = 64 * 1024 * 1024
"""Trimming leaves this much of a shard's log before the snapshots, so that a node that was away briefly needs no
bootstrap."""
SNAPSHOT_EVERY_S: Final = 60.0
SNAPSHOT_FRAME_MAX_BYTES: Final = 64 * 1024 * 1024
REDIS_CONNECT_MAX_S: Final = 2.0
REDIS_REPLIES_MAX_S: Final = 60.0
"""Replies that keep arriving may take this long. When nothing arrives, they are given up earlier."""
SENTINELS_WORD_MAX_S: Final = 0.5
"""Sentinels are asked for the primary again if their answer is older."""

# --- shared, exclusive and delayed ----------------------------------------------------------------------------------
SHARED_TURNS_MAX: Final = 65_536
"""Publishers of each group whose turn or sticky member is remembered. Beyond it, the oldest are forgotten."""
SHARED_GROUP_RECEIVERS: Final = 16
"""A shared group of a message counts as so many receivers, because it takes that long to choose a member."""
SHARED_FILTER_BYTES: Final = 4096
"""What a shared filter counts for beside its length, in its user's quota: about the memory of all nodes for it."""
SHARED_DEALS_MAX: Final = 64
"""A QoS 2 message remembers its member for at most this many shared groups. In further groups a resend may go to
another member."""
SHARED_COUNTS_S: Final = 0.1
"""The number of a group's members on a node is written at most this often, while no others wait."""
SHARED_COUNTS_A_TURN: Final = 250
"""Such numbers that are written together. The next ones wait for them."""
SHARED_RETRY_S: Final = 1.0
SHARED_HOPS_MAX: Final = 16
"""How often a shared message may be passed on to another node or slot, because the former had no members any more."""
DELAYED_MAX_BYTES: Final = MAX_RETAINED_BYTES
DELAYED_MAX_MESSAGES: Final = 4_000_000
"""As many of the smallest as have DELAYED_MAX_BYTES in the quotas of their users, which are a quarter of that by
default."""
DELAYED_MAX_S: Final = 4_294_967
DELAYED_BATCH_MAX: Final = 256
"""Due messages that are looked at together."""
DELAYED_UNDER_WAY_MAX: Final = 1024
DELAYED_UNDER_WAY_MAX_BYTES: Final = 32 * 1024 * 1024
"""Due messages that not all of their receivers have accepted yet. Others are published meanwhile."""
DELAYED_UNDER_WAY_OF_USER_MAX: Final = 256
DELAYED_UNDER_WAY_OF_USER_MAX_BYTES: Final = 8 * 1024 * 1024
"""Those of one user, where clients have users."""
DELAYED_OF_TURN_MAX: Final = 16
"""Due messages of one user that are published before another user has a turn."""
DELAYED_LOOK_S: Final = 0.5
"""How often a core checks whether it is the leader, and retries messages that couldn't be published."""

# --- mqtt: one packet -----------------------------------------------------------------------------------------------
PACKET_MAX_BYTES: Final = 16 * 1024 * 1024
"""The highest `max_packet_size`: half of a link's frame, so that every message can be forwarded."""
TOPIC_MAX_LEVELS: Final = 128
PACKET_MAX_FILTERS: Final = 4096
"""Topic filters in one SUBSCRIBE or UNSUBSCRIBE."""
PACKET_MAX_USER_PROPERTIES: Final = 1024

# --- routing: filters, the match cache, retained messages -----------------------------------------------------------
FAST_SHAPES_MAX: Final = 16
"""An index looks a topic up in at most this many shapes (sets of wildcard positions). A match that isn't cached costs
one look-up for each. Filters of other shapes are in a tree."""
FAST_SHAPE_FILTERS: Final = 64
"""If there are more shapes, a shape needs this many filters to be looked up in."""
SHAPE_MOVES: Final = 16
"""With each new filter, this many filters of a shape that lost its place move to the tree."""
MATCH_CACHE_MAX_BYTES: Final = 128 * 1024 * 1024
"""Routes of topics and heads of packets, also limited to one part in MATCH_CACHE_MEMORY_SHARE of the memory."""
MATCH_CACHE_MEMORY_SHARE: Final = 16
MATCH_CACHE_TOPIC_BYTES: Final = 240
"""What a topic in the cache counts, beside twice its name: its route, and its entries in the tables."""
MATCH_CACHE_HEAD_BYTES: Final = 140
"""What a head counts, beside its bytes."""
MATCH_CACHE_FANOUT_BYTES: Final = 600
"""What a set of subscribers counts that no earlier topic has."""
MATCH_CACHE_TARGET_BYTES: Final = 24
"""What each subscriber in it counts."""
MATCH_CACHE_MAX_TOPIC_BYTES: Final = 512
"""Matches of longer topics aren't cached."""
MATCH_CACHE_ADMITS_EVERY: Final = 16
"""A full cache adds only one of this many new topics, so that more topics than fit don't evict each other all the
time."""
MATCH_CACHE_EVICTS: Final = 64
"""Topics that a full cache drops at once."""
MATCH_CACHE_DROPS_MAX: Final = 4096
"""If a change of filters makes more topics stale, all are dropped: that is quicker."""
MATCH_CACHE_FREES: Final = 64
"""Dropped topics or heads that are freed with each topic that is added."""
MATCHED_AGAIN_MAX: Final = 1000
"""If a client with more filters connects or disconnects, all cached results are dropped: that is quicker than to look
for those of its filters."""
RETAINED_SLICE_MAX_TOPICS: Final = 2048
"""Retained topics checked per event-loop iteration."""

# --- session: messages to and from one client -----------------------------------------------------------------------
CLIENT_FILTERS_MAX_BYTES: Final = 16 * 1024 * 1024
"""Filters of one client, besides `mqtt.max_subscriptions`, because all nodes have them in memory."""
HEADS_PER_TOPIC_MAX: Final = 16
"""Packet prefixes of one topic that the fast path recognises without parsing."""
FANOUTS_MAX: Final = 65_536
"""Distinct sets of subscribers that topics can share."""
FANOUTS_MAX_TARGETS: Final = 1024 * 1024
"""References to subscribers in all these sets."""
MQUEUE_MAX_BYTES: Final = 16 * 1024 * 1024
"""Messages that wait for one client's receive window. `max_mqueue_len` limits their number."""
MQUEUE_AHEAD_MAX: Final = 10_000
"""Messages that a durable session may queue beyond its limit while its client reads and publishers are being paused."""
INCOMING_ALIASES_MAX_BYTES: Final = 64 * 1024
"""Topics of one client's aliases, together. A client that sets more is disconnected (0x97)."""
OUTGOING_ALIASES_MAX: Final = 32
"""Topic aliases that the broker uses towards one client, however many the client allows."""
OUTGOING_ALIAS_MAX_TOPIC_BYTES: Final = 1024
"""A longer topic gets none."""
ALLOWED_HEADS_MAX: Final = 1024
"""Packet prefixes that one client was allowed to publish. A full set is cleared."""
ALLOWED_HEAD_MAX_BYTES: Final = 256
"""A longer prefix isn't kept, so one client's take 256 KiB at most."""
NUMBERS_RESERVED: Final = 4096
"""Sequence numbers that a session reserves at a time. A crash skips at most this many."""
AWAY_SESSIONS_MAX: Final = 1_000_000
"""Durable sessions of one owner whose clients are offline. Beyond it, the one that would expire first ends."""
SESSIONS_EXPIRED_PER_TICK_MAX: Final = 256
ENDED_FILTERS_AT_ONCE: Final = 32
"""A session that ends with more filters leaves them to be removed in time slices, of SLOT_WORK_MAX_S."""
ENDED_FILTERS_A_STEP: Final = 100
ENDED_FILTERS_WAITING_MAX: Final = MAX_ROUTES
"""Filters of ended sessions that wait to be removed. Those of a session beyond it are removed at once."""
INBOUND_LINE_MAX: Final = 1024
"""Messages of one client that wait for the log or for other nodes. Beyond it, the client isn't read until half of them
are done."""
INBOUND_LINE_MAX_BYTES: Final = 4 * 1024 * 1024
HELD_MAX_BYTES: Final = 64 * 1024 * 1024
"""Messages of all clients that wait because the tables may be stale. From half of it on, waiting clients aren't read,
and messages of disconnected clients are dropped, the oldest first. A client that sends beyond it is disconnected
(0x97)."""
INBOUND_BYTES: Final = 512
"""Each of these counts this many bytes besides its packet."""
HELD_LINES_PER_TURN: Final = 8
"""Clients whose messages are matched per event-loop iteration, when the tables are up to date again."""
SUBSCRIBES_WAITING_MAX: Final = 64
"""SUBSCRIBEs of one client that wait for the log. Beyond it, the client isn't read until one of them is answered."""
ORIGINS_MAX: Final = 100_000
"""Durable sessions publishing at QoS 2 whose last numbers a node knows. Duplicates of other sessions are taken for new
messages."""
ORIGINS_WINDOW: Final = 4096
"""The last numbers of each session that are known one by one. At most this many may still come from a node that the
client has left."""
PARTIAL_CHUNKS_MAX: Final = 256
"""Reads of one incomplete packet that are kept before they are joined."""
PARTIALS_MAX_BYTES: Final = 512 * 1024 * 1024
"""Incomplete packets of all clients, also limited to one part in PARTIALS_MEMORY_SHARE of the memory. Beyond it, users
that have more than their share of them lose the connections whose packets began first."""
PARTIAL_COUNTED_BYTES: Final = 2 * 1024
"""A smaller part of a packet isn't counted there."""
PARTIALS_MEMORY_SHARE: Final = 8
SINK_CONGESTED_BYTES: Final = 1024 * 1024
"""Bytes that wait for one client before its publishers are paused."""
SINK_DRAINED_BYTES: Final = 256 * 1024
SINK_LIMIT_BYTES: Final = 8 * 1024 * 1024
"""Beyond it, QoS 0 messages for that client are dropped and counted."""
SINK_CONGESTED_MAX_S: Final = 0.5
"""A client that reads nothing for this long is lagging, and no longer pauses its publishers."""
SINK_HELD_MAX_S: Final = 5.0
"""A client whose queue hasn't drained for this long no longer pauses its publishers, even if it reads steadily."""
GIVEN_UP_WAIT_MAX_S: Final = 1.0
"""After a QoS 2 message expired, the messages behind it wait until it is deleted in Redis. If they expire during that
wait, they are still sent, for at most this long."""

# --- transport: connections and turns of the reactor ----------------------------------------------------------------
READ_MAX_BYTES: Final = 64 * 1024
"""Size of one read of a connection."""
READ_MIN_BYTES: Final = 4 * 1024
"""Minimum size of a read, for a client whose packets take long to process."""
READ_WORK_MAX_S: Final = 0.004
"""If the bytes of one read take longer to process, the next read of that connection is half as large."""
RECEIVERS_PER_READ_MAX: Final = 8192
"""Of a client's messages, all together. Beyond it, the client goes on in the next iteration of the event loop."""
WRITE_JOIN_MAX_BYTES: Final = 256 * 1024
"""Up to this size chunks are joined for one write. Beyond it, they are written one by one."""
WRITE_VECTOR_MAX: Final = 512
TURN_EVENTS_MAX: Final = 512
TURN_EVENTS_AGAIN_MAX: Final = 4096
"""So many more at a time, because epoll reports again who waits: others are behind them."""
TURN_ROUNDS_MAX: Final = 16
TURN_WORK_MAX_S: Final = 0.02
"""A turn that has taken this long begins no further round."""
ROUND_WORK_MAX_S: Final = 0.005
"""A round of a turn that has taken this long serves one more client that waits, and one more of those that send much.
Then epoll is asked again: users take turns, also who has become ready meanwhile."""
SPIN_MAX_S: Final = 0.00005
"""A turn that found little work polls for this long, if work came so soon before."""
ACCEPTS_PER_TURN_MAX: Final = 64
LISTEN_BACKLOG_MAX: Final = 4096
STRANGERS_WAITING_MAX: Final = 128
"""Clients of a listener that have sent something, aren't connected yet and wait to be read. With more, it accepts one
at a time: epoll reports TURN_EVENTS_MAX at a time, and all who wait again and again."""
SWEEP_INTERVAL_S: Final = 0.1
STOOD_STILL_S: Final = 3 * SWEEP_INTERVAL_S
"""A node without a sweep for this long was suspended. It checks whether its tables are stale before it reads on."""
SWEEP_TICKS: Final = 10
"""In each tick the keep-alive of one part in this many of the connections is checked."""
LAGGING_MAX_S: Final = 30.0
"""A lagging client that reads nothing for this long is disconnected (0x97)."""
DISCARD_MAX_BYTES: Final = 256 * 1024
"""Bytes of a disconnected client that are read and discarded at a time."""
LINGER_MAX_S: Final = 1.0
"""Time for a disconnected client to read the reason."""
PROXY_HEADER_MAX_BYTES: Final = 4096
TLS_HELLO_MAX_BYTES: Final = 5 + 16 * 1024
"""A ClientHello with the heads of its records; as much as one record. This much is buffered before any TLS state is
created."""
TLS_HANDSHAKE_BYTES: Final = 45 * 1024
TLS_SESSION_BYTES: Final = 20 * 1024
"""Memory of an unauthenticated client during its handshake, and after it."""
TLS_MESSAGE_BYTES: Final = 132 * 1024
"""What OpenSSL reserves besides for the longest handshake message, as soon as a client has announced its length."""
UNAUTHENTICATED_MAX_BYTES: Final = 24 * 1024 * 1024
"""Memory of all unauthenticated clients, also limited to one part in UNAUTHENTICATED_MEMORY_SHARE of the memory."""
UNAUTHENTICATED_MEMORY_SHARE: Final = 16
UNAUTHENTICATED_COUNTED_BYTES: Final = 512
"""A client that takes less isn't counted, because its connection itself takes more."""
UNAUTHENTICATED_READ_BYTES: Final = 64
"""Each read of these clients counts this many bytes besides its own."""
UNAUTHENTICATED_READ_MAX_BYTES: Final = 8 * 1024
"""Size of one read of an unauthenticated client."""
CONNECTION_BYTES: Final = 8 * 1024
"""Memory of a connection, including the kernel's; TLS_SESSION_BYTES more with TLS. A node has at most as many as fit,
one address half of those that fit without TLS."""
DESCRIPTORS_RESERVED_MAX: Final = 1024
"""File descriptors that clients can't take: for links, Redis, the management port, files. At most half of all."""
TLS_GREETINGS_PER_TURN_MAX: Final = 8
"""ClientHellos answered in one turn, because each takes about a millisecond."""
TLS_REFRESH_S: Final = 5.0
"""How often certificate files are checked for changes."""
WS_HEAD_MAX_BYTES: Final = 8 * 1024
WS_FRAME_MAX_BYTES: Final = PACKET_MAX_BYTES
"""A frame is passed on as it arrives. The zone's `max_packet_size` limits what is buffered."""
FILTER_SLICE_MAX_BYTES: Final = 256 * 1024
"""Bytes that one connection encrypts and frames at a time. The rest waits until these are written."""
FILTER_ANSWERS_MAX_BYTES: Final = 64 * 1024
"""Bytes that TLS and WebSocket may answer a client that reads nothing. Beyond it, the client is disconnected."""
THROTTLE_TICK_S: Final = 0.01
"""How often clients over a rate are checked."""
THROTTLE_CHECK_S: Final = 1.0
"""A throttled client is checked at least this often, because it may have been closed."""

# --- auth -----------------------------------------------------------------------------------------------------------
USERS_MAX: Final = 1_000_000
RULED_MAX: Final = 1_000_000
"""Users, client ids and "all" that have rules in the log."""
RULES_OF_ONE_MAX: Final = 1000
RULES_MAX_BYTES: Final = 64 * 1024
"""Rules of one user or client id in the log, or in a token or an HTTP answer."""
BANS_MAX: Final = 1_000_000
BAN_PATTERNS_MAX: Final = 1000
"""Bans by pattern. Every CONNECT is checked against each of them."""
NAME_PATTERN_MAX_CHARS: Final = 256
"""Characters of a pattern of client ids, user names or listeners: in a ban, a rule, or a filter of a list."""
HASH_THREADS_MAX: Final = 2
HASHES_WAITING_MAX: Final = 256
"""Passwords waiting to be hashed. Beyond it, a client of the address with most of them gets 0x89."""
HASH_GONE_MAX: Final = 1000
"""The list of clients that wait for one hash is cleared of disconnected ones when it has this many more entries than
twice the number of those that still waited at the last clearing."""
HASH_SLICE_LOGINS: Final = 50
"""Logins with one shared hash that continue per event-loop iteration."""
ARGON2_MAX_KIB: Final = 262_144
"""Limits of the cost of one hash, and so of one authenticator for one CONNECT. Hashing runs in a thread."""
ARGON2_MAX_PASSES: Final = 16
BCRYPT_MAX_ROUNDS: Final = 14
PBKDF2_MAX_ITERATIONS: Final = 10_000_000
SCRAM_NAME_MAX_CHARACTERS: Final = 256
"""Length of a user name before and after SASLprep, which takes up to 2 µs per character on the event loop."""
SCRAM_NONCE_MAX_CHARACTERS: Final = 256
VERIFIED_MAX: Final = 100_000
"""Cached keyed digests of passwords that matched, so that a reconnecting client needs no hash."""
FAILED_LOGINS_MAX: Final = 100_000
"""Names and addresses of failed logins that a node remembers. Beyond it, the oldest is forgotten."""
FAILED_LOGINS_KEPT_OF_ADDRESS_MAX: Final = 10_000
"""Of these, those of one address. Beyond it, its own oldest is forgotten."""
FAILED_LOGINS_KEPT_S: Final = 900.0
"""After this time without a failure the count starts from zero."""
FAILED_LOGINS_OF_ADDRESS_MAX: Final = 100
"""After this many failures at one address, each name there is delayed after its first failure."""
LOGINS_OF_NAME_MAX: Final = 64
"""Passwords of one name at one address that are being checked. A client with a further one gets 0x9F."""
KNOWN_CLIENTS_MAX: Final = 100_000
"""Clients that have logged in, whose failures are counted separately. Beyond it, the oldest is forgotten, but none for
one more of a user that has its share of them."""
KNOWN_CLIENTS_LOOKED_AT_MAX: Final = 16
"""Of these, the oldest that are looked at to find one of such a user."""
PASSWORD_MAX_BYTES: Final = 4096
JWT_MAX_BYTES: Final = 8192
JWT_SKEW_MAX_S: Final = 5
"""How far an issuer's clock may be ahead of this machine's."""
EXPIRES_MAX_S: Final = 253_402_300_800.0
"""The year 10,000 in seconds since the epoch. A later expiry time in a token or an answer is refused, because it isn't
in seconds."""
JWKS_MAX_BYTES: Final = 256 * 1024
JWKS_RETRY_S: Final = 5.0
"""Minimum time between two requests for a key set, after an unknown key or a failure."""
REFUSALS_LOGGED_PER_S: Final = 10
"""Log lines per second for each kind of refusal, because clients can cause any number of them."""
ASKED_MAX: Final = 1000
"""Requests to one service that wait for a connection. Beyond it, a connecting client of the address with most of them
gets 0x89, and requests of connected clients wait."""
ASKED_OF_CONNECTION_MAX: Final = 32
"""Requests in flight of one connection. Its others wait."""
ASKING_OF_GONE_MAX: Final = ASKED_MAX
"""Waiting requests of all closed connections. Beyond it, they are refused."""
ASKING_OF_CONNECTION_MAX: Final = 2 * INBOUND_LINE_MAX
"""Waiting requests of one connection. Beyond it, they are refused (0x83)."""
ANSWER_MAX_BYTES: Final = 64 * 1024
AUTH_EXCHANGE_MAX_BYTES: Final = 4096
"""Authentication Data of one AUTH or CONNECT packet."""
AUTHORIZATIONS_MAX_TOPIC_BYTES: Final = 1024
"""Decisions about longer topics aren't cached."""
RULES_COMPILED_MAX: Final = 10_000
"""Keys whose compiled rules are cached. Other rules are compiled when needed."""
FLAPPING_MAX_CLIENTS: Final = 100_000
"""Clients whose disconnects are counted. Beyond it, the longest quiet one is forgotten."""
KICK_SLICE_CLIENTS: Final = 1000
"""Clients checked against a new ban per event-loop iteration."""
BOOTSTRAP_MAX_BYTES: Final = 64 * 1024 * 1024
BOOTSTRAP_BATCH_USERS: Final = 500
AUTH_HOUSEKEEPING_S: Final = 5.0
"""How often the leader imports users and removes expired bans."""
AUTH_PAGE_MAX: Final = 1000
AUTH_PAGE_MAX_BYTES: Final = 1024 * 1024
"""Names, and rules, of one page of users, rules, bans or quotas. The last row may exceed it."""
PAGE_END_MAX_CHARACTERS: Final = 1024
"""Of a name by which a page goes on: at 12 bytes each in an address, less than MANAGEMENT_REQUEST_LINE_MAX_BYTES."""
AUTH_REQUEST_MAX_BYTES: Final = 128 * 1024

# --- quotas: per user in the whole cluster (less if Redis or a node has little memory) ------------------------------
QUOTA_SESSIONS: Final = AWAY_SESSIONS_MAX // 2
QUOTA_QUEUED_BYTES: Final = 16 * 1024 * 1024 * 1024
QUOTA_SUBSCRIPTIONS: Final = MAX_ROUTES // 4
QUOTA_SUBSCRIPTION_BYTES: Final = 256 * 1024 * 1024
QUOTA_RETAINED_BYTES: Final = MAX_RETAINED_BYTES // 4
"""The default quotas of a user."""
OWN_QUOTAS_MAX_USERS: Final = 100_000
"""Users that have quotas of their own in the log."""
QUOTA_AWAY_PERCENT: Final = 75
"""The part of the quota of queued bytes that offline clients' sessions may use. The rest is for connected clients."""
QUEUED_MESSAGE_BYTES: Final = 128
"""A queued message counts this many bytes besides its packet."""
RETAINED_MESSAGE_BYTES: Final = 256
"""The same for a retained message, and for a topic that was cleared recently."""
SESSION_STORED_BYTES: Final = 512
"""Approximate size of a session in Redis, without its messages and subscriptions."""
SESSION_MEMORY_BYTES: Final = 3072
SUBSCRIPTION_MEMORY_BYTES: Final = 512
"""Approximate size of a durable session, and of a subscription, in the memory of a node of the role `single`."""
QUEUED_MEMORY_TIMES: Final = 3
FILTER_MEMORY_TIMES: Final = 2
RETAINED_MEMORY_TIMES: Final = 2
"""About how many bytes of a node's memory a small message, or a filter, takes for each byte that counts."""
QUOTA_TOLD_EVERY_S: Final = 1.0
QUOTA_TOLD_PARTS: Final = 100
"""A node reports users that have at least 1/N of a quota on it."""
QUOTA_SHARES: Final = 64
"""A node may grant a user 1/N of a quota before it reports that to other nodes. It reports when half of that is
used."""
QUOTA_TOLD_SOON_S: Final = 0.05
"""Minimum time between two such reports."""
QUOTA_RETAINED_SHOWN_BYTES: Final = 64 * 1024
"""Users that have stored less than this, and less than 1/QUOTA_TOLD_PARTS of their quota, don't count as large
users."""
QUOTA_USERS_TOLD_MAX: Final = 100
"""Users in one report: the largest ones."""
QUOTA_NAMES_TOLD_MAX_BYTES: Final = 1024
"""Users with longer names are in no report, because a report may be sent every QUOTA_TOLD_SOON_S on each link."""
QUOTA_SLICE_USERS: Final = 1000
"""Users checked per event-loop iteration, after quotas changed."""
QUOTA_SHRINKS_AFTER_S: Final = 60.0
"""A smaller `maxmemory` of Redis, or the first one seen, must last this long before quotas become smaller."""
QUOTA_ALARMS_MAX: Final = 16
"""Users over a quota that have an alarm."""

# --- node -----------------------------------------------------------------------------------------------------------
NODE_SHORT_PART: Final = 0.75
NODE_ROOM_PART: Final = 0.70
"""Shares of a node's memory. From NODE_SHORT_PART on, no node stores more for clients, until that node uses less than
NODE_ROOM_PART."""
NODE_FULL_PART: Final = 0.85
NODE_FULL_ENDS_PART: Final = 0.80
"""The same for new subscriptions of all clients, which every node has in memory."""
NODE_MEMORY_LOOK_S: Final = 0.02
"""How often a node checks that."""
RELIEVED_MIN_BYTES: Final = 16 * 1024
"""From NODE_FULL_PART on it disconnects clients for which at least so much waits, those with most first."""
NODE_GIVES_BACK_S: Final = 30.0
"""How often a node that is short of memory gives back what it has freed: that may take 50 ms for each gigabyte."""
NODE_EMPTY_BYTES: Final = 96 * 1024 * 1024
"""Memory of a node without clients."""
NODE_ROOM_MIN_PARTS: Final = 16
"""In a container with little more than that, default quotas follow one part in this many of its memory."""
LAG_SAMPLE_INTERVAL_S: Final = 10.0
AUTHORIZATION_SLICE_CLIENTS: Final = 2000
"""Connections marked per event-loop iteration to ask for authorization again, after rules changed."""
JUDGING_SLICE_RULES: Final = 2000
"""Rules checked per event-loop iteration for requests of clients. As many are checked for existing subscriptions, when
rules change."""
JUDGING_SHARE_RULES: Final = 200
"""Of these, rules for one client that waited."""
JUDGEMENT_RULES: Final = 10
"""A check counts as this many rules, besides the rules that it checks."""
STANDING_SLICE_CLIENTS: Final = 2000
"""Clients not affected by a change that are skipped per event-loop iteration."""
STANDING_AT_ONCE: Final = 64
"""Clients whose subscriptions are authorized at the same time."""
STANDING_WAIT_S: Final = 1.0
"""How long one client's owner, or an HTTP service, may delay the checks of other clients."""
STANDING_AGAIN_S: Final = 0.5
STANDING_AGAIN_MAX: Final = 20
"""A client whose SUBSCRIBE is in progress is checked again after STANDING_AGAIN_S, at most this often."""
STANDING_READS_MAX: Final = 5
"""How often a session's subscriptions are read again because they, or their order, changed meanwhile."""
STANDING_PAGE_BYTES: Final = 32 * 1024
"""Subscriptions of a session that its owner sends at a time to the node that authorizes them; at least one."""
STANDING_ROW_BYTES: Final = 8
STANDING_LOGGED_PER_S: Final = 10
SESSIONS_TICK_S: Final = 0.25
"""How often due wills and expired sessions are looked for."""
RETAINED_FEED_TOPICS: Final = 512
"""Retained topics checked for one new subscription at a time; all of an iteration take SLOT_WORK_MAX_S and one more."""
UNOFFERED_MAX_BYTES: Final = 256 * 1024 * 1024
"""Wills, and other messages without a connection, that wait to be published. Those beyond it are published in the next
iteration."""
OFFER_WORK_MAX_S: Final = 0.005
"""Publishing these yields to the event loop after this time, or RECEIVERS_PER_READ_MAX."""
OFFERED_MAX_BYTES: Final = 64 * 1024 * 1024
"""Of these, messages that wait for a retry. Further ones are lost."""
OFFERED_OF_USER_MAX_BYTES: Final = OFFERED_MAX_BYTES // 2
"""Of these, messages of one user."""
OFFERED_BYTES: Final = 512
"""Each of these counts this many bytes besides its packet."""
OFFERED_TOGETHER_MAX: Final = 64
"""Of these, messages that are retried per event-loop iteration."""
OFFER_RETRY_MIN_S: Final = 0.05
OFFER_RETRY_MAX_S: Final = 5.0
WILLS_MAX_S: Final = 2.0
"""How long a stopping node waits until its clients' wills are sent."""
WILL_HELD_S: Final = 30.0
"""An owner holds back the will of an evicted client for this long. If the client reconnects meanwhile, the will isn't
published."""
WILLS_HELD_MAX_BYTES: Final = 64 * 1024 * 1024
"""Wills held back by one owner, and the message ids of those whose clients are back. Beyond it, a will is published
at once."""
CANCELLED_WILLS_KEPT_S: Final = 60.0
CANCELLED_WILLS_MAX_BYTES: Final = 64 * 1024 * 1024
"""Wills that CONNECTs cancelled, which may still be refused. Beyond it, the oldest stays cancelled."""
EVICTION_TICK_S: Final = 0.1
EVICTION_JOINED_MAX_S: Final = 0.5
"""After a pause, a draining node catches up at most this much time of evictions."""
EVICTION_BEGINS_S: Final = 1.0
"""A draining node waits this long before it evicts the first client, so that other nodes share the rate and load
balancers send no new clients."""
EVICTION_LOOK_S: Final = 0.5
"""How often a draining node checks which nodes accept clients, and how many drain."""
CONNECT_WAIT_MAX_S: Final = 0.5
"""While a client waits longer for CONNACK at another node, draining nodes send fewer clients there."""
REBALANCE_LOOK_S: Final = 2.0
"""How often a node compares its number of clients with the other nodes', while it rebalances or may begin to."""
REBALANCE_SETTLED_S: Final = 10.0
"""A rebalance that was asked for ends when no node has sent clients away for this long: those that were sent away come
back meanwhile."""
REBALANCE_TRIES: Final = 3
"""A node that rebalances sends away this many times its excess, then waits again, or gives up if it was asked to: some
clients come back to it."""
REBALANCE_COMPARED_MAX: Final = 10_000
"""Clients that a node compares at a look, the oldest first, to choose who goes: it does nothing else meanwhile."""
REBALANCE_WAIT_MAX_S: Final = 3600.0
"""A node whose clients come back each time waits no longer than this, or than the wait that is set."""
CLIENT_TRAFFIC_LOOK_S: Final = 10.0
"""How often a node counts the messages of each of its clients anew."""
CLIENT_TRAFFIC_AVERAGED_S: Final = 30.0
"""Over this time messages per second are averaged, so that a burst moves nobody."""
CLIENT_TRAFFIC_SLICE: Final = 1000
"""Clients that are counted in one iteration of the event loop."""
OTHERS_UNKNOWN_MAX_S: Final = 3.0
"""If that is unknown for this long, the node disconnects all clients at once."""
LOGGED_TOGETHER_MAX: Final = 256
"""Retained and delayed messages of clients in one write to the log. Others wait, users in turn."""
LOGGED_WAIT_S: Final = 0.1
"""The next ones wait this long for that write. While it isn't done then, each is written at once."""
LOGGED_MESSAGE_BYTES: Final = 128
"""A message that waits counts this many bytes besides its packet."""
LOGGED_WAITING_MAX_BYTES: Final = 64 * 1024 * 1024
"""Such messages that wait. Publishers of further ones get 0x97."""
LOGGED_OF_USER_WAITING_MAX_BYTES: Final = LOGGED_WAITING_MAX_BYTES // 2
"""Of these, messages of one user."""
RETAINED_BACK_S: Final = 2.0
"""How often a feed of retained messages checks whether its client is back, or asks a log that didn't answer again."""
RETAINED_CLEARED_KEPT_S: Final = 300.0
"""How long the log remembers who cleared a topic, so that older retained messages of that client are ignored."""
RETAINED_SEEN_MAX_S: Final = 2.0
"""How long a SUBACK waits for the log to show the retained messages."""
RETAINED_EXPIRED_LOOK_S: Final = 10.0
RETAINED_EXPIRED_MAX: Final = 100_000
"""Expired retained messages found by one search."""
RETAINED_EXPIRED_SLICE: Final = 1000
"""Of these, messages deleted from the log at a time."""
RETAINED_LIVE_MAX_TOPICS: Final = 100_000
"""Topics that are remembered because they changed while retained messages are sent to new subscriptions."""

# --- plugins, topic rewrite -----------------------------------------------------------------------------------------
PLUGIN_CALL_MAX_S: Final = 0.005
"""A handler that takes longer has failed, because it blocks the event loop."""
PLUGIN_FAILURES_MAX: Final = 10
"""After this many failures within PLUGIN_FAILURES_WINDOW_S a plugin is fenced."""
PLUGIN_FAILURES_WINDOW_S: Final = 60.0
PLUGIN_FILTERS_MAX: Final = 256
"""Topic filters of one handler of message.publish."""
REWRITE_RULES_MAX: Final = 1024
AUTO_SUBSCRIPTIONS_MAX: Final = 64

# --- logs -----------------------------------------------------------------------------------------------------------
LOGGED_MAX_CHARACTERS: Final = 128
"""Characters of a client id, a user name or a topic in a log line."""
LOG_LINE_MAX_CHARACTERS: Final = 2048
"""Length of a log message, without its traceback."""
LOG_LINES_PER_S: Final = 50
"""Lines of one kind per second."""
LOG_KINDS_COUNTED_S: Final = 1.0
"""Lines are counted for this long. Then the log says how many more there were of each kind."""

# --- telemetry ------------------------------------------------------------------------------------------------------
LOOP_WATCH_INTERVAL_S: Final = 0.1
LOOP_WATCH_WINDOW_S: Final = 60.0
"""The longest delay of the event loop is shown for this window, a common scrape interval."""

# --- $SYS -----------------------------------------------------------------------------------------------------------
SYSTEM_VALUES_MAX_S: Final = 1.0
"""Maximum age of the values that a new subscriber gets."""
