"""A node: the log, the cluster, sessions and their RPC, the router and the listeners, put together."""
