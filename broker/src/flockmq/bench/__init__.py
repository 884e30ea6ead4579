"""`flockmq bench`: a load generator for any MQTT broker, which also measures the broker's CPU and memory.

`command` is the command line. `throughput`, `latency`, `connects`, `subscribes` and `idle` are the measurements;
`multi_process` runs one in several processes. A `BenchTarget` is the broker's address, a `BenchLink` one connection to
it, a `MessageRing` the messages of a publisher, and a `BenchInbox` checks the messages that arrive. Each process has
one thread and uses no MQTT library, so everything between measurement and socket can be read here.
"""
