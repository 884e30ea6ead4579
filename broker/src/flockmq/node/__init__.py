"""A node: the log, the cluster, the homes, the router and the listeners, put together."""
