"""`flockmq bench`: a load generator for any MQTT broker, and what it costs the broker.

`command` is what a user types, `throughput`, `latency`, `connects` and `idle` are the measurements, `crowd` runs one
many times at once. A `BenchTarget` says where the broker is, a `BenchLink` is one connection to it, a `Ring` is what a
publisher sends, a `BenchInbox` accounts for what arrives. All of it is one thread a process, without a library: what
stands between the measurement and the socket is here to be read.
"""
